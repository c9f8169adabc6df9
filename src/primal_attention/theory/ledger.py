"""What a layer remembers of its training forwards, so that `ksvd_loss` can find it.

An entry lives exactly as long as it can be of use: until a backward pass has gone through a forward
of its layer, or until `ksvd_loss` has read it and the next forward begins. It keeps no graph alive
beyond that, is not copied with the module, and a forward that gradient checkpointing runs again
during backward is not counted twice.
"""

from __future__ import annotations

import functools
import itertools
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .entry import Count, Entry, Parts
from .transforms import is_transformed

_CAPACITY = 32  # forwards without backward or `ksvd_loss`, beyond which something is wrong

_keys = itertools.count(1)
_ledgers: weakref.WeakValueDictionary[int, Ledger] = weakref.WeakValueDictionary()


class Ledger:
    """The entries of one layer. One thread at a time may train a layer."""

    def __init__(self) -> None:
        self.key = next(_keys)
        self.entries: list[Entry] = []
        self.seen: tuple[Entry, ...] = ()  # what `read` returned last
        # The key for compiled graphs: a number would make every layer a graph of its own.
        self.tag = torch.tensor(self.key, device="cpu")
        # For backward passes, by the key: a node of the graph must not keep a ledger alive.
        self.went_back = functools.partial(_release_unless_to_be_differentiated, self.key)
        _ledgers[self.key] = self

    def record(self, out: Tensor, made: Parts | Tensor, count_e: Count, count_r: Count) -> Tensor:
        """Remember a forward whose output is `out` by its terms (3, B, h), or by what they are made
        of; returns `out`, from now on tied to them: a backward pass through either releases the
        ledger."""
        with_grad, compiling = torch.is_grad_enabled(), torch.compiler.is_compiling()
        transformed = compiling or is_transformed()
        if isinstance(made, Parts) and with_grad and not transformed and _to_be_trained(made):
            out, terms = _WatchParts.apply(out, self.went_back, *made)
        else:
            terms = made.terms() if isinstance(made, Parts) else made
            if terms.requires_grad and not transformed:
                out, terms = _Watch.apply(out, terms, self.went_back)
        entry = Entry(terms, count_e, count_r, with_grad)
        if compiling:
            return self._record_compiled(out, entry)
        if not transformed:
            self.append(entry)
        elif not torch._C._functorch.is_batchedtensor(terms):  # it would outlive its vmap
            self._append(entry)
        return out

    def append(self, entry: Entry) -> None:
        """Remember a forward in eager mode whose node calls `went_back` itself."""
        if not _inside_backward():
            self._append(entry)

    def read(self) -> Sequence[Entry]:
        """The entries since the last backward pass, or since the forward after the last `read`.

        Forwards under torch.no_grad count only where there are no others.
        """
        if torch.compiler.is_compiling():
            self._collect_compiling()
            return self.seen
        self._collect()
        if self.entries:
            trained = [entry for entry in self.entries if entry.with_grad]
            self.seen, self.entries = tuple(trained or self.entries), []
        self.seen = tuple(_alive(self.seen))
        return self.seen

    def release(self) -> None:
        self.entries, self.seen = [], ()
        for name in self._slots():
            delattr(self, name)

    def _append(self, entry: Entry) -> None:
        self.seen = ()
        self.entries = [*_alive(self.entries), entry]
        if len(self.entries) > _CAPACITY and self.entries.pop(0).with_grad:
            warnings.warn(
                f"a primal layer ran {_CAPACITY} training forwards without a backward pass or "
                "ksvd_loss; the oldest is forgotten. For inference call model.eval() or use "
                "torch.no_grad().",
                stacklevel=2,
            )

    # A compiled graph must not depend on what the ledger holds, or it would be compiled again for
    # every state. So it only writes: each traced call has a slot (an attribute) of its own, and an
    # operator that runs with the graph moves the slot's last entry away before it is overwritten.

    def _record_compiled(self, out: Tensor, entry: Entry) -> Tensor:
        slot = _new_slot()
        terms = torch.ops.primal_attention.begin(entry.terms, self.tag, slot)
        out, terms = _CompiledWatch.apply(out, terms, self.tag)
        setattr(self, _name(slot), entry._replace(terms=terms))
        return out

    def begin(self, slot: int) -> None:
        """A compiled forward starts that will write this slot."""
        if self.seen:
            self.release()
        elif _name(slot) in vars(self):
            self._collect()

    def _collect(self) -> None:
        for name in self._slots():
            entry = getattr(self, name)
            delattr(self, name)
            self._append(entry)

    def _collect_compiling(self) -> None:
        """`ksvd_loss` inside a compiled graph sees the forwards of that graph."""
        names = [name for name in map(_name, _slots_of_trace()) if hasattr(self, name)]
        if names:
            self.seen = tuple([getattr(self, name) for name in names])
            for name in names:
                delattr(self, name)

    def _slots(self) -> list[str]:
        return [name for name in vars(self) if name.startswith(_SLOT)]

    # A copy of a layer starts with an empty ledger of its own.
    def __deepcopy__(self, memo: dict[int, Any]) -> Ledger:
        return Ledger()

    def __reduce__(self) -> tuple[type[Ledger], tuple[()]]:
        return Ledger, ()


def _to_be_trained(parts: Parts) -> bool:
    return any(part is not None and part.requires_grad for part in parts)


def _inside_backward() -> bool:
    """Whether the autograd engine is running: a forward now is a checkpoint's second one."""
    return bool(torch._C._current_graph_task_id() != -1)


def _alive(entries: Sequence[Entry]) -> list[Entry]:
    """Without those of a function transform (torch.func) that is over."""
    dead = torch._C._functorch.is_dead_tensor_wrapper  # type: ignore[attr-defined]
    return [entry for entry in entries if not dead(entry.terms)]


def _release(key: int) -> None:
    ledger = _ledgers.get(key)
    if ledger is not None:
        ledger.release()


def _release_unless_to_be_differentiated(key: int) -> None:
    if not torch.is_grad_enabled():  # with create_graph more is to come
        _release(key)


class _Watch(torch.autograd.Function):
    """Identity on (out, terms) whose backward releases the ledger.

    Joining the two also makes every parameter of `J` reachable from the output, so that data
    parallel training sees it as used whether or not the loss contains `J`.
    """

    @staticmethod
    def forward(
        ctx: Any, out: Tensor, terms: Tensor, went_back: Callable[[], None]
    ) -> tuple[Tensor, Tensor]:
        ctx.went_back = went_back
        # Detached: an input that is returned would count as a view, which among several outputs
        # must not be changed in place, and a caller may write `out += x`.
        return out.detach(), terms.detach()

    @staticmethod
    def backward(ctx: Any, g_out: Tensor, g_terms: Tensor) -> tuple[Tensor, Tensor, None]:
        ctx.went_back()
        return g_out, g_terms, None


class _WatchParts(torch.autograd.Function):
    """The same, with the terms made on the way: one node and a closed form in place of a dozen."""

    @staticmethod
    def forward(
        ctx: Any, out: Tensor, went_back: Callable[[], None], *parts: Any
    ) -> tuple[Tensor, Tensor]:
        ctx.went_back = went_back
        ctx.save_for_backward(*parts)
        return out.detach(), Parts(*parts).terms()

    @staticmethod
    def backward(ctx: Any, g_out: Tensor, g_terms: Tensor) -> tuple[Tensor | None, ...]:
        ctx.went_back()
        return g_out, None, *Parts(*ctx.saved_tensors).gradient(g_terms)


# The same for compiled graphs, where only registered operators keep their side effects.


class _CompiledWatch(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, out: Tensor, terms: Tensor, tag: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(tag)
        return out.detach(), terms.detach()

    @staticmethod
    def backward(ctx: Any, g_out: Tensor, g_terms: Tensor) -> tuple[Tensor, Tensor, None]:
        (tag,) = ctx.saved_tensors
        return g_out, torch.ops.primal_attention.release(g_terms, tag), None


@torch.library.custom_op("primal_attention::begin", mutates_args=())
def _begin(terms: Tensor, tag: Tensor, slot: int) -> Tensor:
    ledger = _ledgers.get(int(tag))
    if ledger is not None:
        ledger.begin(slot)
    return terms.clone()


@_begin.register_fake
def _(terms: Tensor, tag: Tensor, slot: int) -> Tensor:
    return torch.empty_like(terms)


_begin.register_autograd(lambda ctx, g_terms: (g_terms, None, None))


@torch.library.custom_op("primal_attention::release", mutates_args=())
def _release_op(g_terms: Tensor, tag: Tensor) -> Tensor:
    _release(int(tag))
    return g_terms.clone()


@_release_op.register_fake
def _(g_terms: Tensor, tag: Tensor) -> Tensor:
    return torch.empty_like(g_terms)


# Slots are numbered while a graph is traced, and are constants in it.

_SLOT = "slot_"
_slot_numbers = itertools.count()
_traces: weakref.WeakKeyDictionary[Any, list[int]] = weakref.WeakKeyDictionary()


def _name(slot: int) -> str:
    return f"{_SLOT}{slot}"


def _new_slot() -> int:
    slot = next(_slot_numbers)
    _traces.setdefault(torch._guards.TracingContext.get(), []).append(slot)
    return slot


def _slots_of_trace() -> tuple[int, ...]:
    return tuple(_traces.get(torch._guards.TracingContext.get(), ()))


# What torch.compiler.assume_constant_result does, which would import the whole compiler.
for _constant in (_new_slot, _slots_of_trace):
    vars(_constant)["_dynamo_marked_constant"] = True
