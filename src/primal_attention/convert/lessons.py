"""What the original attentions were asked, and what they answered: recorded once, learned often."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from ..adapters.converted import Call, Converted
from .examples import call_model
from .sites import paths

GIGABYTE = 1e9  # of recordings that are held at a time


class Lesson(NamedTuple):
    """A call of an original, and its answer: rows (positions, d) without padding."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    keep: Tensor | None  # the positions that count, in the order of the output
    answer: Tensor

    def error(self, layer: Converted) -> Tensor:
        """Squared error of the converted layer over the variance of the answer."""
        found = _rows(_tensor(type(layer).forward(layer, *self.args, **self.kwargs)), self.keep)
        variance = (self.answer - self.answer.mean(0)).square().mean()
        least = torch.finfo(variance.dtype).tiny
        return (found - self.answer).square().mean() / variance.clamp(min=least)

    @property
    def bytes(self) -> int:
        held = [leaf for leaf in tree_leaves(self) if isinstance(leaf, Tensor)]
        return sum(each.nbytes for each in held)


def lessons(
    model: nn.Module,
    layers: Sequence[Converted],
    batches: Sequence[Any],
    learning: Sequence[Converted],
) -> Iterator[tuple[Converted, list[list[Lesson]]]]:
    """Each layer that is learning with the lessons of every batch (several, if it is used in
    several places). The model runs with the originals of all `layers`; about a gigabyte of
    recordings is held at a time."""
    first = _record(model, layers, batches[:1], learning)
    size = sum(lesson.bytes for heard in first.values() for each in heard for lesson in each)
    count = max(1, int(GIGABYTE * len(learning) / max(1, size * len(batches))))
    for start in range(0, len(learning), count):
        part = learning[start : start + count]
        whole = len(batches) == 1 and len(part) == len(learning)
        yield from (first if whole else _record(model, layers, batches, part)).items()


@torch.no_grad()
def _record(
    model: nn.Module, layers: Sequence[Converted], batches: Sequence[Any], part: Sequence[Converted]
) -> dict[Converted, list[list[Lesson]]]:
    found: dict[Converted, list[list[Lesson]]] = {layer: [] for layer in part}

    def hear(layer: Converted, call: Call, args: Any, kwargs: Any, taught: Any) -> None:
        if layer in found:
            keep = _counted(layer, call)
            args, kwargs = _copies((args, kwargs))
            found[layer][-1].append(Lesson(args, kwargs, keep, _rows(_tensor(taught), keep)))

    for batch in batches:
        for heard in found.values():
            heard.append([])
        with taught_by_originals(layers, hear):
            call_model(model, batch)
        for layer, heard in found.items():
            if not heard[-1]:
                name = paths(model, layer)[0]
                raise ValueError(f"{name} was not reached by this batch; expected one that uses it")
    return found


@contextmanager
def taught_by_originals(layers: Sequence[Converted], tell: Callable[..., None]) -> Iterator[None]:
    """For the time of a `with`, the layers give their originals' outputs; `tell` gets each call,
    translated and as it came, with that output."""

    def forward_of(layer: Converted) -> Callable[..., Any]:
        original = layer.conversion.original

        def forward(*args: Any, **kwargs: Any) -> Any:
            # there is no place in a cache for both of them
            kwargs = {name: v for name, v in kwargs.items() if name != "past_key_values"}
            taught = original(*args, **kwargs)  # type: ignore[misc]
            tell(layer, layer.translate(*args, **kwargs), args, kwargs, taught)
            return taught

        return forward

    for layer in layers:
        layer.__dict__["forward"] = forward_of(layer)
    try:
        yield
    finally:
        for layer in layers:
            del layer.__dict__["forward"]


def _counted(layer: Converted, call: Call) -> Tensor | None:
    if call.ignore is None or call.context is not None:
        return None
    keep = ~call.ignore
    return keep if getattr(layer.primal, "batch_first", True) or keep.dim() == 1 else keep.t()


def _rows(output: Tensor, keep: Tensor | None) -> Tensor:
    return output.flatten(0, -2) if keep is None else output[keep]


def _tensor(output: Any) -> Tensor:
    return output[0] if isinstance(output, tuple) else output  # type: ignore[no-any-return]


def _copies(call: Any) -> Any:
    """A model may write into its tensors afterwards; what was one tensor stays one."""
    made: dict[int, Tensor] = {}

    def copy(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        if id(leaf) not in made:
            made[id(leaf)] = leaf.detach().clone()
        return made[id(leaf)]

    return tree_map(copy, call)
