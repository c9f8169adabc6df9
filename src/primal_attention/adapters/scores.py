"""softmax(q k^T) v, recognised while a module computes it step by step, without its N x N matrix.

In place of q k^T a module gets `Scores`, which know their shape and what was done to them. Scaled,
masked, through softmax and dropout they stay so; when they meet the values, the attention is known
and somebody else answers. Whatever else a module does with them forms the matrix, and the module is
on its own from there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from .heads import Between
from .masks import HIDDEN

Answer = Callable[[Between], Tensor]
_PRODUCTS = ("matmul", "__matmul__", "__rmatmul__")
_SAME = ("float", "to", "type", "type_as", "contiguous", "dropout", "dropout_")
_FACTS = ("__get__", "size", "dim", "numel", "is_floating_point", "__len__")


class Scores(Tensor):
    """scale <q, k> + mask, or its softmax: a tensor of that shape without numbers."""

    query: Tensor
    key: Tensor  # (B, h, M, p)
    scale: float
    mask: Tensor | None  # True = visible, or added
    normalised: bool

    @staticmethod
    def of(query: Tensor, key: Tensor, **facts: Any) -> Scores:
        shape = (*query.shape[:-1], key.shape[-2])
        new = query.detach().new_empty(()).expand(shape).as_subclass(Scores)
        new.__dict__ |= {"query": query, "key": key, "scale": 1.0, "mask": None}
        new.__dict__ |= {"normalised": False, **facts}
        return new

    def but(self, **facts: Any) -> Scores:
        known = {name: self.__dict__[name] for name in ("scale", "mask", "normalised")}
        return Scores.of(self.query, self.key, **(known | facts))

    def formed(self) -> Tensor:
        """The numbers."""
        found = self.scale * (self.query @ self.key.mT)
        if self.mask is not None:
            if self.mask.dtype == torch.bool:
                found = found.masked_fill(~self.mask, torch.finfo(found.dtype).min)
            else:
                found = found + self.mask
        return found.softmax(-1) if self.normalised else found

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in _FACTS:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        step = _STEPS.get(name)
        found = None if step is None else step(*args, **kwargs)
        if found is None:
            return func(*map(_formed, args), **{n: _formed(v) for n, v in kwargs.items()})
        return found


def _formed(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return type(value)(map(_formed, value))
    return value.formed() if isinstance(value, Scores) else value


# -- steps on the way; None: it is none that is known ----------------------------------------------


def _scaled(one: Any, other: Any) -> Scores | None:
    scores, factor = (one, other) if isinstance(one, Scores) else (other, one)
    number = _number(factor)
    if number is None or scores.mask is not None or scores.normalised:
        return None
    return scores.but(scale=scores.scale * number)


def _divided(scores: Any, divisor: Any, **others: Any) -> Scores | None:
    number = _number(divisor)
    if not isinstance(scores, Scores) or not number or others:
        return None
    return _scaled(scores, 1.0 / number)


def _added(one: Any, other: Any) -> Scores | None:
    scores, mask = (one, other) if isinstance(one, Scores) else (other, one)
    if scores.normalised or not isinstance(mask, Tensor) or isinstance(mask, Scores):
        return None
    if not mask.is_floating_point():
        return None
    return _hidden(scores, mask)


def _filled(scores: Any, hidden: Tensor, value: Any) -> Scores | None:
    if not isinstance(scores, Scores) or scores.normalised or not _hides(value):
        return None
    return _hidden(scores, ~hidden.bool())


def _chosen(visible: Any, scores: Any, value: Any) -> Scores | None:
    return _filled(scores, ~visible, value) if isinstance(visible, Tensor) else None


def _normalised(scores: Any, dim: int | None = None, *rest: Any, **others: Any) -> Scores | None:
    if scores.normalised or dim not in (-1, 3):
        return None
    return scores.but(normalised=True)  # type: ignore[no-any-return]


def _same(scores: Any, *rest: Any, **others: Any) -> Scores | None:
    return scores if isinstance(scores, Scores) else None


_STEPS: dict[str, Callable[..., Scores | None]] = {
    **dict.fromkeys(("mul", "mul_", "__mul__", "__rmul__", "__imul__"), _scaled),
    **dict.fromkeys(("div", "div_", "__truediv__", "__itruediv__"), _divided),
    **dict.fromkeys(("add", "add_", "__add__", "__radd__", "__iadd__"), _added),
    **dict.fromkeys(("masked_fill", "masked_fill_"), _filled),
    **dict.fromkeys(_SAME, _same),
    "where": _chosen,
    "softmax": _normalised,
}


def _hidden(scores: Scores, mask: Tensor) -> Scores | None:
    """With a mask in addition to the one that is there."""
    if mask.dim() > 4:
        return None
    mask, old = mask[(None,) * (4 - mask.dim())], scores.mask
    if old is None:
        return scores.but(mask=mask)
    if mask.dtype == old.dtype == torch.bool:
        return scores.but(mask=old & mask)
    low = torch.finfo(scores.dtype).min
    old, mask = (
        torch.zeros_like(each, dtype=scores.dtype).masked_fill(~each, low)
        if each.dtype == torch.bool
        else each
        for each in (old, mask)
    )
    return scores.but(mask=(old + mask).clamp(min=low))


def _number(value: Any) -> float | None:
    if isinstance(value, Tensor):
        return float(value) if value.numel() == 1 and not value.requires_grad else None
    return float(value) if isinstance(value, int | float) else None


def _hides(value: Any) -> bool:
    number = _number(value)
    return number is not None and number <= HIDDEN


# -- products --------------------------------------------------------------------------------------


class Recognised(TorchFunctionMode):
    """In a `with`, attentions that are computed step by step are answered by `answer`."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer = answer

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        found = None
        if name in _PRODUCTS and len(args) == 2:
            found = self._product(*args)
        elif name == "einsum" and len(args) == 3:
            found = self._einsum(*args)
        return func(*args, **kwargs) if found is None else found

    def _product(self, one: Tensor, other: Tensor) -> Tensor | None:
        if isinstance(other, Scores) or one.dim() != 4 or other.dim() != 4:
            return None
        if isinstance(one, Scores):
            return self._with_values(one, other)
        return Scores.of(one, other.mT) if one.shape[:2] == other.shape[:2] else None

    def _with_values(self, weights: Scores, values: Tensor) -> Tensor | None:
        if not weights.normalised:
            return None
        return self.answer(
            Between(weights.query, weights.key, values, weights.mask, None, weights.scale)
        )

    def _einsum(self, equation: str, one: Tensor, other: Tensor) -> Tensor | None:
        """As a product of matrices: bhid,bhjd->bhij and bhij,bhjd->bhid in any order of axes."""
        inputs, _, out = equation.replace(" ", "").partition("->")
        left, _, right = inputs.partition(",")
        if {len(left), len(right), len(out)} != {4} or isinstance(other, Scores):
            return None
        shared = [axis for axis in left if axis in right and axis in out]
        rows, columns = set(left) - set(right), set(right) - set(left)
        inner = set(left) - rows - set(shared)
        if len(shared) != 2 or {len(rows), len(columns), len(inner)} != {1}:
            return None
        (row,), (column,), (within,) = rows, columns, inner
        shared = [axis for axis in out if axis in shared]
        first, second = [*shared, row, within], [*shared, within, column]
        if isinstance(one, Scores):
            if list(left) != first:
                return None
        else:
            one = one.permute([left.index(axis) for axis in first])
        found = self._product(one, other.permute([right.index(axis) for axis in second]))
        natural = [*shared, row, column]
        if isinstance(found, Scores):
            return found if list(out) == natural else None
        return None if found is None else found.permute([natural.index(axis) for axis in out])
