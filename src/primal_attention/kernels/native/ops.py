"""A whole layer as one autograd node on the compiled kernels.

The node takes the parameters as they are: W_c and the output projection become one map inside where
that is cheaper, and the terms of J (equation 11) come out, so that a call is two functions in C++
and little else.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from ..random_bits import draw_mask, keep_scale
from .library import Kernels, pack

Kind = Literal["tied", "fixed"]
COSINE, ELU, SQUARED_ELU = range(3)  # `Map` in source/call.h
_CPU = torch.device("cpu")
_TYPES = {torch.float32: 0, torch.bfloat16: 1}  # `Type` in source/tiles.h


class Parameters(NamedTuple):
    """The parameters of a layer as it has them, those of its kind of weights first: PARAMETERS of
    `library.py`."""

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
    log_sharp: Tensor | None = None  # (2, h), of a sharp feature map


_ROOT, _CONCAT_W = map(Parameters._fields.index, ("root", "concat_w"))


class Options(NamedTuple):
    """What a call does."""

    kernels: Kernels
    kind: Kind
    feature_map: int
    causal: bool  # tied weights whose sums run over j <= i
    anchors: int  # 0: none
    dropout: float
    want_terms: bool
    went_back: Callable[[], None] | None = None  # is called by the backward pass


class Before(NamedTuple):
    """What a causal tied layer has seen before: sums (B, 2, h, p, s), with a further column for
    positive features, of `seen` (B,) positions. They have no gradient."""

    sums: Tensor
    seen: Tensor


class Inputs(NamedTuple):
    """What both ways read, contiguous; all but x in float32."""

    x: Tensor
    ignore: Tensor | None
    keep: Tensor | None  # a byte for each score that dropout keeps
    tensors: Sequence[Tensor | None]  # Parameters
    before: Before | None = None


class Results(NamedTuple):
    """What a call makes."""

    out: Tensor  # (B, N, d), zero where a position is ignored
    terms: Tensor | None = None  # (3, B, h), of J
    square: Tensor | None = None  # the mean over samples of J^2, a scalar
    after: Tensor | None = None  # the sums after x, if there are some before


def attend(
    x: Tensor,
    ignore: Tensor | None,
    parameters: Parameters,
    options: Options,
    before: Before | None = None,
) -> Results:
    """Equation (9) at x (B, N, d), without the positions to ignore (B, N)."""
    ignore = None if ignore is None else ignore.contiguous()
    if before is not None:
        before = Before(before.sums.float().contiguous(), before.seen.contiguous())
    tensors = as_float32(parameters)
    return Results(
        *_Attend.apply(x.contiguous(), ignore, options, before, torch.is_grad_enabled(), *tensors)
    )


def as_float32(parameters: Parameters) -> list[Tensor | None]:
    return [t if t is None or _is_plain(t) else t.float().contiguous() for t in parameters]


def _is_plain(t: Tensor) -> bool:
    return t.dtype is torch.float32 and t.is_contiguous()


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        ignore: Tensor | None,
        options: Options,
        before: Before | None,
        grad_enabled: bool,  # in here it never is, and ctx does not tell
        *tensors: Tensor | None,
    ) -> tuple[Tensor | None, ...]:
        keep = saved = terms = square = after = None
        numbers = numbers_of(x, tensors, options)
        count, padded = sizes(options, numbers, ignore)
        batch, heads, rank = numbers[0], numbers[3], numbers[5]
        if options.dropout:
            keep = draw_mask(padded * 2 * heads * rank, options.dropout)
        if grad_enabled and any(ctx.needs_input_grad):
            saved = _float32(count)
        if options.want_terms:
            terms, square = _float32(3, batch, heads), _float32()
        if before is not None:
            after = torch.empty_like(before.sums)
            ctx.mark_non_differentiable(after)
        results = Results(torch.empty_like(x), terms, square, after)
        run_forward(Inputs(x, ignore, keep, tensors, before), options, saved, results, numbers)
        ctx.options, ctx.before, ctx.numbers = options, before, numbers
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, ignore, keep, saved, terms, *tensors)
        return tuple(results)

    @staticmethod
    def backward(
        ctx: Any, g: Tensor | None, g_terms: Tensor | None, g_square: Tensor | None, _: None
    ) -> tuple[Tensor | None, ...]:
        _refuse_second_derivative()
        options: Options = ctx.options
        x, ignore, keep, saved, terms, *tensors = ctx.saved_tensors
        if options.went_back is not None:
            options.went_back()
        g = torch.zeros_like(x) if g is None else g.contiguous()
        g_terms = None if g_terms is None else g_terms.contiguous()
        made = [None if t is None else torch.empty_like(t) for t in (x, *tensors)]
        if not ctx.needs_input_grad[0]:
            made[0] = None
        inputs = Inputs(x, ignore, keep, tensors, ctx.before)
        run_backward(inputs, options, saved, terms, (g, g_terms, g_square), made, ctx.numbers)
        return made[0], None, None, None, None, *made[1:]


def _float32(*shape: int) -> Tensor:
    """Memory that the functions in C++ write, whatever torch's default type and device are."""
    return torch.empty(shape, dtype=torch.float32, device=_CPU)


# -- the functions in C++ --------------------------------------------------------------------------


def numbers_of(x: Tensor, tensors: Sequence[Any], options: Options) -> tuple[int, ...]:
    """NUMBERS of `library.py`."""
    (heads, rank), head_dim = tensors[_ROOT].shape, len(tensors[_CONCAT_W])
    return (
        *x.shape, heads, head_dim, rank, options.anchors, options.feature_map,
        _TYPES[x.dtype], options.causal, torch.get_num_threads(),
    )  # fmt: skip


def sizes(options: Options, numbers: tuple[int, ...], ignore: Tensor | None) -> tuple[int, int]:
    """How many numbers are saved for the way back, and how many positions have scores."""
    if ignore is None:
        return _sizes_without_mask(options.kernels, options.kind, numbers)
    return _sizes(options.kernels, options.kind, numbers, ignore.data_ptr())


def _sizes(kernels: Kernels, kind: Kind, numbers: tuple[int, ...], ignore: int) -> tuple[int, int]:
    saved, padded = ctypes.c_int64(), ctypes.c_int64()
    call = pack(numbers, 1.0, (0, ignore))
    kernels.run(f"primal_{kind}_sizes", call, ctypes.byref(saved), ctypes.byref(padded))
    return saved.value, padded.value


@functools.lru_cache(maxsize=256)
def _sizes_without_mask(kernels: Kernels, kind: Kind, numbers: tuple[int, ...]) -> tuple[int, int]:
    return _sizes(kernels, kind, numbers, 0)


def run_forward(
    inputs: Inputs,
    options: Options,
    saved: Tensor | None,
    results: Results,
    numbers: Sequence[int] | None = None,
) -> None:
    """Fill the results, and what is saved for the way back."""
    _run("forward", inputs, options, (saved, *results), numbers)


def run_backward(
    inputs: Inputs,
    options: Options,
    saved: Tensor,
    terms: Tensor | None,
    given: Sequence[Tensor | None],
    made: Sequence[Tensor | None],
    numbers: Sequence[int] | None = None,
) -> None:
    """Fill the gradients of x and the parameters from those of output, terms and square."""
    _run("backward", inputs, options, (saved, None, terms, None, None, *given, *made), numbers)


def _run(
    way: str,
    inputs: Inputs,
    options: Options,
    others: Sequence[Tensor | None],
    numbers: Sequence[int] | None,
) -> None:
    x, ignore, keep, tensors, before = inputs
    given = (x, ignore, keep, *tensors, *(before or (None, None)), *others)
    call = pack(
        numbers or numbers_of(x, tensors, options),
        keep_scale(options.dropout) if options.dropout else 1.0,
        [0 if tensor is None else tensor.data_ptr() for tensor in given],
    )
    options.kernels.run(f"primal_{options.kind}_{way}", call)


def _refuse_second_derivative() -> None:
    """A backward pass under create_graph would return constants: silently wrong."""
    if torch.is_grad_enabled():
        raise RuntimeError(
            "the hand-written backward pass of Primal-Attention has no derivative itself "
            "(create_graph=True was asked for); set layer.fast = False for second derivatives"
        )
