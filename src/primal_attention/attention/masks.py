"""Masks in torch's conventions, checked once and brought to one form."""

from __future__ import annotations

import torch
from torch import Tensor

from ..kernels.graphs import is_exporting


def expect_tensor(name: str, given: object, shape: str) -> None:
    """Raise unless an argument is a tensor that is not sparse."""
    if not isinstance(given, Tensor):
        raise TypeError(f"{name} is of type {type(given).__name__}; expected a Tensor {shape}")
    if given.layout != torch.strided and not given.is_nested:
        raise ValueError(f"{name} has layout {given.layout}; expected torch.strided")


def padding_mask(mask: Tensor | None, batch: int, length: int, *, batched: bool) -> Tensor | None:
    """The key padding mask as (B, M) bool, True = ignore.

    A float mask must hold only 0 (keep) and -inf (ignore): a finite bias per key has no meaning for
    attentions without an N x N matrix, and would be dropped silently.
    """
    if mask is None:
        return None
    expected = (batch, length) if batched else (length,)
    expect_tensor("key_padding_mask", mask, f"{expected} of torch.bool (True = ignore)")
    if tuple(mask.shape) != expected:
        raise ValueError(f"key_padding_mask has shape {tuple(mask.shape)}; expected {expected}")
    if mask.dtype != torch.bool:
        if not mask.is_floating_point():
            raise TypeError(
                f"key_padding_mask has dtype {mask.dtype}; expected torch.bool (True = ignore) or "
                "a floating type (0 = keep, -inf = ignore)"
            )
        ignore = mask == -torch.inf
        _expect_all(ignore | (mask == 0), mask)
        mask = ignore
    return mask if batched else mask.unsqueeze(0)


def visible_keys(ignore: Tensor | None) -> Tensor | None:
    """The mask of scores (B, 1, 1, M) that hides ignored keys (B, M), True = visible. Where nothing
    is visible, all is: a softmax over nothing has no gradient, and its rows are zeroed afterwards.
    """
    if ignore is None:
        return None
    return (~ignore | ignore.all(-1, keepdim=True))[:, None, None, :]


def _expect_all(fine: Tensor, mask: Tensor) -> None:
    expected = "expected only 0 (keep) and -inf (ignore)"
    if not torch.compiler.is_compiling():
        if not bool(fine.all()):
            odd = mask[~fine][0].item()
            raise ValueError(f"key_padding_mask holds {odd}; {expected}")
    elif not is_exporting():  # a compiled graph can only check while it runs
        torch._assert_async(fine.all(), f"key_padding_mask holds another number; {expected}")


def check_attention_mask(
    attn_mask: Tensor | None, is_causal: bool, *, causal: bool, shape: tuple[int, int, int]
) -> None:
    """Accept only what the layer does anyway: nothing masked, or the causal mask if causal. The
    shape is that of a mask with a matrix for every head, (B h, N, M)."""
    matrices, queries, keys = shape
    if is_causal and not causal:
        raise ValueError(
            "is_causal=True was asked of a layer built with causal=False; "
            "expected a layer built with causal=True"
        )
    if attn_mask is None or (is_causal and causal):  # is_causal vouches for the mask, as in torch
        return
    expect_tensor("attn_mask", attn_mask, f"({queries}, {keys}) of torch.bool (True = hidden)")
    if attn_mask.dtype != torch.bool and not attn_mask.is_floating_point():
        raise TypeError(
            f"attn_mask has dtype {attn_mask.dtype}; expected torch.bool (True = hidden) or a "
            "floating type (0 = visible, -inf = hidden)"
        )
    if tuple(attn_mask.shape) not in ((queries, keys), shape):
        raise ValueError(
            f"attn_mask has shape {tuple(attn_mask.shape)}; expected ({queries}, {keys}) or "
            f"(batch * num_heads = {matrices}, {queries}, {keys})"
        )
    if torch.compiler.is_compiling():
        raise ValueError(
            "attn_mask cannot be inspected inside a compiled graph; expected None, or "
            "is_causal=True with a layer built with causal=True"
        )
    hidden = attn_mask if attn_mask.dtype == torch.bool else attn_mask == -torch.inf
    finite_bias = attn_mask.is_floating_point() and bool(attn_mask[~hidden].any())
    future = torch.ones(queries, keys, dtype=torch.bool, device=hidden.device).triu(1)
    wanted = future if causal else torch.zeros_like(future)
    if finite_bias or not bool((hidden == wanted).all()):
        what = "the causal mask" if causal else "None or a mask that hides nothing"
        raise ValueError(
            "attn_mask hides or weights single pairs of positions, which an attention without an "
            f"N x N matrix cannot honour; expected {what} (causal={causal})"
        )
