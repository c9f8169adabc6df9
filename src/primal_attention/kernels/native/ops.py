"""A whole layer as one autograd node on the compiled kernels.

The node takes the parameters as they are: W_c and the output projection become one map inside, and
the terms of J (equation 11) come out, so that a call is two functions in C++ and little else.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from ..random_bits import draw_mask, keep_scale
from .library import Call, Kernels

Kind = Literal["tied", "fixed"]
COSINE, ELU, SQUARED_ELU = range(3)  # `Map` in source/call.h
_TYPES = {torch.float32: 0, torch.bfloat16: 1}  # `Type` in source/tiles.h


class Parameters(NamedTuple):
    """The parameters of a layer as it has them, those of its kind of weights first."""

    w_dual: Tensor | None  # (2 h s, d): tied
    w_e: Tensor | None  # (h, n, s): data-dependent, with n anchors; free, with n = p
    w_r: Tensor | None
    weights: Tensor | None  # (B, 2, h, s, p): data-dependent weights that were made elsewhere
    w_in: Tensor  # (2 h p, d), queries and then keys
    b_in: Tensor | None  # (2 h p)
    root: Tensor  # (h, s), Lambda^{1/2}
    concat_w: Tensor  # (p, 2 s)
    concat_b: Tensor | None  # (p)
    out_w: Tensor  # (d, h p)
    out_b: Tensor | None  # (d)


class Options(NamedTuple):
    """What a call does."""

    kernels: Kernels
    kind: Kind
    feature_map: int
    causal: bool  # tied weights whose sums run over j <= i
    anchors: int  # 0: none
    dropout: float
    want_terms: bool


class Before(NamedTuple):
    """What a causal tied layer has seen before: sums (B, 2, h, p, s), with a further column for
    positive features, of `seen` (B,) positions. They have no gradient."""

    sums: Tensor
    seen: Tensor


def attend(
    x: Tensor,
    ignore: Tensor | None,
    parameters: Parameters,
    options: Options,
    before: Before | None = None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Equation (9) at x (B, N, d): the output (B, N, d), zero where ignore (B, N), the terms of J
    (3, B, h) if they are wanted, and the sums after x if there are some before."""
    tensors = [t if t is None else t.float().contiguous() for t in parameters]
    ignore = None if ignore is None else ignore.contiguous()
    if before is not None:
        before = Before(before.sums.float().contiguous(), before.seen.contiguous())
    out, terms, after = _Attend.apply(x.contiguous(), ignore, options, before, *tensors)
    return out, terms, after


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        ignore: Tensor | None,
        options: Options,
        before: Before | None,
        *tensors: Tensor | None,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        call = describe(x, ignore, tensors, options, before)
        numbers, padded = ctypes.c_int64(), ctypes.c_int64()
        sizes = ctypes.byref(numbers), ctypes.byref(padded)
        options.kernels.run(f"primal_{options.kind}_sizes", ctypes.byref(call), *sizes)
        keep = saved = terms = None
        if options.dropout:  # a byte for each score
            keep = draw_mask(padded.value * 2 * call.heads * call.rank, options.dropout)
        if any(ctx.needs_input_grad):
            saved = x.new_empty(numbers.value, dtype=torch.float32)
        if options.want_terms:
            terms = x.new_empty(3, call.batch, call.heads, dtype=torch.float32)
        out = torch.empty_like(x)
        after = None if before is None else torch.empty_like(before.sums)
        call.keep, call.saved, call.out, call.terms = map(_address, (keep, saved, out, terms))
        call.after = _address(after)
        options.kernels.run(f"primal_{options.kind}_forward", ctypes.byref(call))
        ctx.options, ctx.before = options, before
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, ignore, keep, saved, *tensors)
        if after is not None:
            ctx.mark_non_differentiable(after)
        return out, terms, after

    @staticmethod
    def backward(
        ctx: Any, g: Tensor | None, g_terms: Tensor | None, _: None
    ) -> tuple[Tensor | None, ...]:
        _refuse_second_derivative()
        x, ignore, keep, saved, *tensors = ctx.saved_tensors
        call = describe(x, ignore, tensors, ctx.options, ctx.before)
        g = torch.zeros_like(x) if g is None else g.contiguous()
        g_terms = None if g_terms is None else g_terms.contiguous()
        call.keep, call.saved, call.g, call.g_terms = map(_address, (keep, saved, g, g_terms))
        wanted = [x if ctx.needs_input_grad[0] else None, *tensors]
        made = [None if t is None else torch.empty_like(t) for t in wanted]
        for name, gradient in zip(("x", *Parameters._fields), made, strict=True):
            setattr(call, f"d_{name}", _address(gradient))
        ctx.options.kernels.run(f"primal_{ctx.options.kind}_backward", ctypes.byref(call))
        return made[0], None, None, None, *made[1:]


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def describe(
    x: Tensor,
    ignore: Tensor | None,
    tensors: Sequence[Tensor | None],
    options: Options,
    before: Before | None,
) -> Call:
    """The inputs of a call."""
    sums, seen = (None, None) if before is None else map(_address, before)
    addresses = Parameters(*map(_address, tensors))  # type: ignore[arg-type]
    p = Parameters(*tensors)  # type: ignore[arg-type]
    heads, rank = p.root.shape
    return Call(
        *x.shape, heads, len(p.concat_w), rank, options.feature_map, _TYPES[x.dtype],
        options.causal,
        torch.get_num_threads(), keep_scale(options.dropout), x.data_ptr(), _address(ignore), None,
        addresses.w_in, addresses.b_in, addresses.w_dual, addresses.w_e, addresses.w_r,
        options.anchors, addresses.weights, addresses.root, addresses.concat_w, addresses.concat_b,
        addresses.out_w, addresses.out_b, sums, seen,
    )  # fmt: skip


def _refuse_second_derivative() -> None:
    """A backward pass under create_graph would return constants: silently wrong."""
    if torch.is_grad_enabled():
        raise RuntimeError(
            "the hand-written backward pass of Primal-Attention has no derivative itself "
            "(create_graph=True was asked for); set layer.fast = False for second derivatives"
        )
