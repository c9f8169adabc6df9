"""The node of `ops.py` as a registered operator, for compiled graphs: they keep it as one call.

What the kernels save for the way back has a size that depends on the mask. A graph must know sizes
beforehand, so here it is the most that it can be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, List  # noqa: UP035

import torch
from torch import Tensor

from . import library, ops

_PANEL = 32  # the most positions that fill up a tile (PANEL in source/vectors.h)


def available() -> bool:
    """Whether there are kernels: a constant in a compiled graph."""
    return library.kernels() is not None


# What torch.compiler.assume_constant_result does, which would import the whole compiler.
vars(available)["_dynamo_marked_constant"] = True


def attend(
    x: Tensor,
    ignore: Tensor | None,
    parameters: ops.Parameters,
    *,
    feature_map: int,
    causal: bool,
    anchors: int,
    want_terms: bool,
) -> ops.Results:
    """`ops.attend` without dropout, without sums before x and without the square."""
    ignore = None if ignore is None else ignore.contiguous()
    options = feature_map, causal, anchors, torch.is_grad_enabled()
    out, terms, _ = torch.ops.primal_attention.attend(
        x.contiguous(), ignore, *present(ops.as_float32(parameters)), *options
    )
    return ops.Results(out, terms if want_terms else None)


# An operator takes no list in which tensors are missing: it takes those that are there, and where.


def present(parameters: Sequence[Tensor | None]) -> tuple[list[Tensor], list[int]]:
    """The parameters that are there, and their numbers."""
    found = [(t, i) for i, t in enumerate(parameters) if t is not None]
    return [t for t, _ in found], [i for _, i in found]


def _parameters(tensors: Sequence[Tensor], numbers: Sequence[int]) -> ops.Parameters:
    there = dict(zip(numbers, tensors, strict=True))
    return ops.Parameters(*(there.get(i) for i in range(len(ops.Parameters._fields))))  # type: ignore[arg-type]


def _options(p: ops.Parameters, feature_map: int, causal: bool, anchors: int) -> ops.Options:
    kernels = library.kernels()
    if kernels is None:
        raise RuntimeError(
            "the compiled kernels are gone; expected those that the graph was made with"
        )
    kind: ops.Kind = "fixed" if p.w_dual is None else "tied"
    return ops.Options(kernels, kind, feature_map, causal, anchors, 0.0, True)


def _saved_size(x: Tensor, p: ops.Parameters, causal: bool) -> Any:
    """At most so many numbers are saved."""
    batch, length = x.shape[:2]
    heads, rank = p.root.shape
    sides, inner, scores = 2 * heads, len(p.w_in), 2 * heads * rank
    padded = batch * (length + _PANEL)
    if p.w_dual is None:
        return (
            padded * (inner + sides + scores)
            + batch * scores
            + batch * sides * rank * len(p.concat_w)
        )
    states = batch * (length // 32 + 2) if causal else batch
    channels = inner + scores * (2 if causal else 1) + sides + 1
    size = (rank + 1) * len(p.concat_w)
    return padded * channels + (batch + states) * sides * size + batch * scores + _PANEL


@torch.library.custom_op("primal_attention::attend", mutates_args=())
def _attend(
    x: Tensor,
    ignore: Tensor | None,
    tensors: Sequence[Tensor],
    numbers: Sequence[int],
    feature_map: int,
    causal: bool,
    anchors: int,
    save: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Output, terms of J, and what the way back needs."""
    p = _parameters(tensors, numbers)
    out, terms = torch.empty_like(x), x.new_empty(3, x.shape[0], len(p.root), dtype=torch.float32)
    saved = x.new_empty(_saved_size(x, p, causal) if save else 0, dtype=torch.float32)
    if x.numel() == 0:
        terms.zero_()
    options = _options(p, feature_map, causal, anchors)
    inputs = ops.Inputs(x, ignore, None, p)
    ops.run_forward(inputs, options, saved if save else None, ops.Results(out, terms))
    return out, terms, saved


@_attend.register_fake
def _(
    x: Tensor,
    ignore: Tensor | None,
    tensors: Sequence[Tensor],
    numbers: Sequence[int],
    feature_map: int,
    causal: bool,
    anchors: int,
    save: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    p = _parameters(tensors, numbers)
    terms = x.new_empty(3, x.shape[0], len(p.root), dtype=torch.float32)
    size = _saved_size(x, p, causal) if save else 0
    return torch.empty_like(x), terms, x.new_empty(size, dtype=torch.float32)


@torch.library.custom_op("primal_attention::attend_backward", mutates_args=())
def _attend_backward(
    g: Tensor,
    g_terms: Tensor,
    x: Tensor,
    ignore: Tensor | None,
    saved: Tensor,
    tensors: Sequence[Tensor],
    numbers: Sequence[int],
    feature_map: int,
    causal: bool,
    anchors: int,
) -> List[Tensor]:  # noqa: UP006 (torch 2.6 knows no other spelling)
    """The gradients of x and of the parameters that there are."""
    p = _parameters(tensors, numbers)
    made = [None if t is None else torch.empty_like(t) for t in (x, *p)]
    inputs, options = ops.Inputs(x, ignore, None, p), _options(p, feature_map, causal, anchors)
    given = g.contiguous(), g_terms.contiguous(), None
    ops.run_backward(inputs, options, saved, None, given, made)
    return [t for t in made if t is not None]


@_attend_backward.register_fake
def _(
    g: Tensor,
    g_terms: Tensor,
    x: Tensor,
    ignore: Any,
    saved: Tensor,
    tensors: Sequence[Tensor],
    *_: Any,
) -> list[Tensor]:
    return [torch.empty_like(t) for t in (x, *tensors)]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Sequence[Tensor]) -> None:
    x, ignore, tensors, *options, _ = inputs
    ctx.save_for_backward(x, ignore, output[2], *tensors)
    ctx.options = options


def _backward(ctx: Any, g: Tensor, g_terms: Tensor, _: Any) -> tuple[Any, ...]:
    x, ignore, saved, *tensors = ctx.saved_tensors
    d_x, *made = torch.ops.primal_attention.attend_backward(
        g, g_terms, x, ignore, saved, tensors, *ctx.options
    )
    return d_x, None, made, *[None] * 5


_attend.register_autograd(_backward, setup_context=_setup)
