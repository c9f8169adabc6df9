"""What a layer remembers of its training forwards, so that `ksvd_loss` can find it.

An entry must live exactly as long as it can be of use: until a backward pass has gone through the
forward it belongs to, or until `ksvd_loss` has read it and the next forward begins. It must not keep
a graph alive beyond that, must not be copied with the module, and must not count a forward twice
that gradient checkpointing runs again during backward.
"""

from __future__ import annotations

import itertools
import warnings
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

_CAPACITY = 16  # forwards without backward or `ksvd_loss`, beyond which something is wrong
_COMPILED_CAPACITY = 4  # a compiled graph is specialised on the number of entries

_keys = itertools.count(1)
_ledgers: weakref.WeakValueDictionary[int, Ledger] = weakref.WeakValueDictionary()


class Entry(NamedTuple):
    """One forward of one layer: everything that `J` needs (equation 11)."""

    terms: Tensor  # (3, B, h): sum_i e_i^T Lambda e_i, sum_j r_j^T Lambda r_j, Tr(W_e^T W_r)
    count_e: Tensor  # (B,): valid queries
    count_r: Tensor  # (B,): valid keys


class Ledger:
    """The entries of one layer."""

    def __init__(self) -> None:
        self.key = next(_keys)
        self.entries: list[Entry] = []
        self.was_read = False
        _ledgers[self.key] = self

    def record(self, out: Tensor, entry: Entry) -> Tensor:
        """Remember an entry; returns `out`, from now on tied to it: a backward pass through either
        removes the entry."""
        if torch.compiler.is_compiling():
            if len(self.entries) >= _COMPILED_CAPACITY:
                self.entries = []
            terms = torch.ops.primal_attention.watch(entry.terms, self.key)
            self.entries.append(entry._replace(terms=terms))
            return out
        if self.was_read:
            self.release()
        if entry.terms.requires_grad:
            out, terms = _Watch.apply(out, entry.terms, self.key)
            entry = entry._replace(terms=terms)
        if not _inside_backward():
            self.entries.append(entry)
            self._limit()
        return out

    def read(self) -> Sequence[Entry]:
        self.was_read = True
        return tuple(self.entries)

    def release(self) -> None:
        self.entries = []
        self.was_read = False

    def _limit(self) -> None:
        if len(self.entries) > _CAPACITY:
            del self.entries[0]
            warnings.warn(
                f"a primal layer ran {_CAPACITY} training forwards without a backward pass or "
                "ksvd_loss; the oldest is forgotten. For inference call model.eval() or use "
                "torch.no_grad().",
                stacklevel=2,
            )

    # A copy of a layer starts with an empty ledger of its own.
    def __deepcopy__(self, memo: dict[int, Any]) -> Ledger:
        return Ledger()

    def __reduce__(self) -> tuple[type[Ledger], tuple[()]]:
        return Ledger, ()


def _inside_backward() -> bool:
    """Whether the autograd engine is running: a forward now is a checkpoint's second one."""
    return bool(torch._C._current_graph_task_id() != -1)


def _release(key: int) -> None:
    ledger = _ledgers.get(key)
    if ledger is not None:
        ledger.release()


class _Watch(torch.autograd.Function):
    """Identity on (out, terms) whose backward releases the ledger.

    Joining the two also makes every parameter of `J` reachable from the output, so that data
    parallel training sees it as used whether or not the loss contains `J`.
    """

    @staticmethod
    def forward(ctx: Any, out: Tensor, terms: Tensor, key: int) -> tuple[Tensor, Tensor]:
        ctx.key = key
        return out, terms

    @staticmethod
    def backward(ctx: Any, g_out: Tensor, g_terms: Tensor) -> tuple[Tensor, Tensor, None]:
        _release(ctx.key)
        return g_out, g_terms, None


# The same for compiled graphs, where only registered operators keep their side effects.


@torch.library.custom_op("primal_attention::watch", mutates_args=())
def _watch(terms: Tensor, key: int) -> Tensor:
    return terms.clone()


@torch.library.custom_op("primal_attention::release", mutates_args=())
def _watch_backward(g_terms: Tensor, key: int) -> Tensor:
    _release(key)
    return g_terms.clone()


@_watch.register_fake
@_watch_backward.register_fake
def _like(terms: Tensor, key: int) -> Tensor:
    return torch.empty_like(terms)


def _setup(ctx: Any, inputs: tuple[Tensor, int], output: Tensor) -> None:
    ctx.key = inputs[1]


def _backward(ctx: Any, g_terms: Tensor) -> tuple[Tensor, None]:
    return torch.ops.primal_attention.release(g_terms, ctx.key), None


_watch.register_autograd(_backward, setup_context=_setup)
