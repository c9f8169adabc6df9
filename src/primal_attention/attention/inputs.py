"""Checking and arranging the arguments of an attention call, the same for every mechanism."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..theory.transforms import is_transformed
from .masks import expect_tensor, padding_mask
from .rotation import Rotation


class Sequences(NamedTuple):
    """A checked call: x (B, N, d) asks, y (B, M, d) is asked; `y is x` in self-attention."""

    x: Tensor
    y: Tensor
    ignore: Tensor | None  # (B, M), True = ignore this key
    is_self: bool
    batched: bool
    batch_first: bool
    nested: bool = False
    rotation: Rotation | None = None  # of the positions, in self-attention

    def restore(self, out: Tensor) -> Tensor:
        """Bring an output (B, N, d) to the caller's layout."""
        if self.nested and self.ignore is not None:
            lengths = (~self.ignore).sum(-1).tolist()
            rows = [row[:length] for row, length in zip(out, lengths, strict=True)]
            return torch.nested.as_nested_tensor(rows)
        if not self.batched:
            return out.squeeze(0)
        return out if self.batch_first else out.transpose(0, 1)


def arrange(
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    key_padding_mask: Tensor | None,
    *,
    embed_dim: int,
    dtype: torch.dtype,
    batch_first: bool,
    has_values: bool,
) -> tuple[Sequences, Tensor]:
    """Check one call and bring it to (batch, length, width); the second result is the values.

    key and value default to query; like nn.MultiheadAttention, 2-D inputs are one sequence. A
    nested query is what nn.TransformerEncoder makes of a padded batch in inference, if it was built
    around nn.MultiheadAttention and given another attention later.
    """
    if torch.jit.is_tracing():  # type: ignore[attr-defined]
        raise RuntimeError(
            "torch.jit.trace would keep the lengths of its example; expected torch.export.export, "
            "or torch.onnx.export with dynamo=True"
        )
    key = query if key is None else key
    value = key if value is None else value
    expect_tensor("query", query, f"(batch, length, {embed_dim})")
    if key is not query:
        expect_tensor("key", key, f"(batch, length, {embed_dim})")
    if value is not key:
        expect_tensor("value", value, f"(batch, length, {embed_dim})")
    if query.is_nested:
        if not (key is query and value is query and key_padding_mask is None):
            raise ValueError(
                "query is a nested tensor; expected self-attention without key_padding_mask"
            )
        padded, beyond = _unpack(query)
        call, values = arrange(
            padded, None, None, beyond,
            embed_dim=embed_dim, dtype=dtype, batch_first=True, has_values=has_values,
        )  # fmt: skip
        return call._replace(nested=True), values
    key = query if _same(key, query) else key
    value = query if _same(value, query) else key if _same(value, key) else value
    if value is not key and not has_values:
        raise ValueError(
            "value differs from key; this attention has no values, expected value to be key or None"
        )
    _check("query", query, embed_dim, dtype, query)
    if key is not query:
        _check("key", key, embed_dim, dtype, query)
    if value is not key and value is not query:
        _check("value", value, embed_dim, dtype, query)
    batched = query.dim() == 3
    x = _batch_first(query, batched, batch_first)
    y = x if key is query else _batch_first(key, batched, batch_first)
    v = y if value is key else x if value is query else _batch_first(value, batched, batch_first)
    if y is not x and y.shape[0] != x.shape[0]:
        raise ValueError(f"key has batch size {y.shape[0]}; expected {x.shape[0]}, as query")
    if v is not y and v.shape[:2] != y.shape[:2]:
        raise ValueError(
            f"value has (batch, length) {tuple(v.shape[:2])}; expected {tuple(y.shape[:2])}, as key"
        )
    for name, tensor in (("query", x), ("key", y)):
        if tensor.shape[1] == 0:
            raise ValueError(f"{name} has length 0; expected at least one position")
    ignore = padding_mask(key_padding_mask, y.shape[0], y.shape[1], batched=batched)
    return Sequences(x, y, ignore, y is x, batched, batch_first), v


def _unpack(nested: Tensor) -> tuple[Tensor, Tensor]:
    """The rows of a nested tensor as (B, N, d), padded with zeros, and its padding mask (B, N)."""
    if nested.layout != torch.strided:
        raise ValueError(f"query is nested with layout {nested.layout}; expected torch.strided")
    padded = torch.nested.to_padded_tensor(nested, 0.0)
    lengths = torch.tensor([len(rows) for rows in nested.unbind()], device=nested.device)
    positions = torch.arange(padded.shape[1], device=nested.device)
    return padded, positions >= lengths.unsqueeze(-1)


def _same(a: Tensor, b: Tensor) -> bool:
    """Whether two arguments are one tensor. Hooks and checkpointing hand over an alias for each
    argument; such aliases have the same place in memory and the same origin in the graph."""
    if a is b:
        return True
    if torch.compiler.is_compiling() or is_transformed():
        return False
    return (
        a.shape == b.shape
        and a.requires_grad == b.requires_grad
        and a.grad_fn is b.grad_fn
        and a.dtype == b.dtype
        and not a.is_nested
        and torch._C._is_alias_of(a, b)  # type: ignore[attr-defined]
        and a.stride() == b.stride()
        and a.storage_offset() == b.storage_offset()
    )


def _batch_first(tensor: Tensor, batched: bool, batch_first: bool) -> Tensor:
    if not batched:
        return tensor.unsqueeze(0)
    return tensor if batch_first else tensor.transpose(0, 1)


def _check(name: str, tensor: Tensor, embed_dim: int, dtype: torch.dtype, query: Tensor) -> None:
    if tensor.dim() not in (2, 3):
        raise ValueError(
            f"{name} has shape {tuple(tensor.shape)}; expected (batch, length, {embed_dim}), or "
            f"(length, {embed_dim}) for a single sequence"
        )
    if tensor.dim() != query.dim():
        raise ValueError(f"{name} has {tensor.dim()} dimensions; expected {query.dim()}, as query")
    if tensor.device != query.device:
        raise ValueError(f"{name} is on {tensor.device}; expected {query.device}, as query")
    if tensor.shape[-1] != embed_dim:
        raise ValueError(f"{name} has width {tensor.shape[-1]}; expected embed_dim = {embed_dim}")
    # in this order: autocast cannot be asked about every kind of device
    if tensor.dtype != dtype and not torch.is_autocast_enabled(tensor.device.type):
        raise ValueError(f"{name} has dtype {tensor.dtype}; expected {dtype}, as the layer")
