"""The node of `ops.py` as a registered operator, for compiled graphs: they keep it as one call.

What the kernels save for the way back has a size that depends on the mask. A graph must know sizes
beforehand, so here it is the most that it can be.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

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
) -> tuple[Tensor, Tensor | None]:
    """`ops.attend` without dropout and without sums before x."""
    tensors = [t if t is None else t.float().contiguous() for t in parameters]
    ignore = None if ignore is None else ignore.contiguous()
    needs = torch.is_grad_enabled()
    out, terms, _ = torch.ops.primal_attention.attend(
        x.contiguous(), ignore, *tensors, feature_map, causal, anchors, needs
    )
    return out, terms if want_terms else None


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
    w_dual: Tensor | None,
    w_e: Tensor | None,
    w_r: Tensor | None,
    weights: Tensor | None,
    w_in: Tensor,
    b_in: Tensor | None,
    root: Tensor,
    concat_w: Tensor,
    concat_b: Tensor | None,
    out_w: Tensor,
    out_b: Tensor | None,
    feature_map: int,
    causal: bool,
    anchors: int,
    save: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Output, terms of J, and what the way back needs."""
    p = ops.Parameters(
        w_dual, w_e, w_r, weights, w_in, b_in, root, concat_w, concat_b, out_w, out_b
    )  # fmt: skip
    options = _options(p, feature_map, causal, anchors)
    call = ops.describe(x, ignore, p, options, None)
    out, terms = torch.empty_like(x), x.new_empty(3, x.shape[0], len(root), dtype=torch.float32)
    saved = x.new_empty(_saved_size(x, p, causal) if save else 0, dtype=torch.float32)
    call.out, call.terms = out.data_ptr(), terms.data_ptr()
    call.saved = saved.data_ptr() if save else None
    if x.numel() == 0:
        terms.zero_()
    options.kernels.run(f"primal_{options.kind}_forward", ctypes.byref(call))
    return out, terms, saved


@_attend.register_fake
def _(x: Tensor, ignore: Tensor | None, *given: Any) -> tuple[Tensor, Tensor, Tensor]:
    p, (_, causal, _, save) = ops.Parameters(*given[:11]), given[11:]
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
    w_dual: Tensor | None,
    w_e: Tensor | None,
    w_r: Tensor | None,
    weights: Tensor | None,
    w_in: Tensor,
    b_in: Tensor | None,
    root: Tensor,
    concat_w: Tensor,
    concat_b: Tensor | None,
    out_w: Tensor,
    out_b: Tensor | None,
    feature_map: int,
    causal: bool,
    anchors: int,
) -> list[Tensor]:
    """The gradients of x and of the parameters that there are."""
    p = ops.Parameters(
        w_dual, w_e, w_r, weights, w_in, b_in, root, concat_w, concat_b, out_w, out_b
    )  # fmt: skip
    options = _options(p, feature_map, causal, anchors)
    call = ops.describe(x, ignore, p, options, None)
    g, g_terms = g.contiguous(), g_terms.contiguous()
    call.g, call.g_terms, call.saved = g.data_ptr(), g_terms.data_ptr(), saved.data_ptr()
    made = [torch.empty_like(x)]
    call.d_x = made[0].data_ptr()
    for name, tensor in zip(p._fields, p, strict=True):
        if tensor is not None:
            made.append(torch.empty_like(tensor))
            setattr(call, f"d_{name}", made[-1].data_ptr())
    options.kernels.run(f"primal_{options.kind}_backward", ctypes.byref(call))
    return made


@_attend_backward.register_fake
def _(
    g: Tensor, g_terms: Tensor, x: Tensor, ignore: Any, saved: Tensor, *given: Any
) -> list[Tensor]:
    return [torch.empty_like(t) for t in (x, *given[:11]) if t is not None]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Sequence[Tensor]) -> None:
    ctx.save_for_backward(*inputs[:13], output[2])
    ctx.options = inputs[13:16]


def _backward(ctx: Any, g: Tensor, g_terms: Tensor, _: Any) -> tuple[Any, ...]:
    x, ignore, *tensors, saved = ctx.saved_tensors
    made = torch.ops.primal_attention.attend_backward(
        g, g_terms, x, ignore, saved, *tensors, *ctx.options
    )
    rest = iter(made[1:])
    return made[0], None, *(None if t is None else next(rest) for t in tensors), *[None] * 4


_attend.register_autograd(_backward, setup_context=_setup)
