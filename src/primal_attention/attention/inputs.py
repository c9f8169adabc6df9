"""Checking and arranging the arguments of an attention call, the same for every mechanism."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .masks import padding_mask


class Sequences(NamedTuple):
    """A checked call: x (B, N, d) asks, y (B, M, d) is asked; `y is x` in self-attention."""

    x: Tensor
    y: Tensor
    ignore: Tensor | None  # (B, M), True = ignore this key
    batched: bool
    batch_first: bool

    @property
    def is_self(self) -> bool:
        return self.y is self.x

    def restore(self, out: Tensor) -> Tensor:
        """Bring an output (B, N, d) to the caller's layout."""
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

    key and value default to query; like nn.MultiheadAttention, 2-D inputs are one sequence.
    """
    key = query if key is None else key
    value = key if value is None else value
    if value is not key and not has_values:
        raise ValueError(
            "value differs from key; this attention has no values, expected value to be key or None"
        )
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        _check(name, tensor, embed_dim, dtype, query.dim())
    batched = query.dim() == 3
    x = _batch_first(query, batched, batch_first)
    y = x if key is query else _batch_first(key, batched, batch_first)
    v = y if value is key else x if value is query else _batch_first(value, batched, batch_first)
    if y.shape[0] != x.shape[0]:
        raise ValueError(f"key has batch size {y.shape[0]}; expected {x.shape[0]}, as query")
    if v.shape[:2] != y.shape[:2]:
        raise ValueError(
            f"value has (batch, length) {tuple(v.shape[:2])}; expected {tuple(y.shape[:2])}, as key"
        )
    for name, tensor in (("query", x), ("key", y)):
        if tensor.shape[1] == 0:
            raise ValueError(f"{name} has length 0; expected at least one position")
    ignore = padding_mask(key_padding_mask, y.shape[0], y.shape[1], batched=batched)
    return Sequences(x, y, ignore, batched, batch_first), v


def _batch_first(tensor: Tensor, batched: bool, batch_first: bool) -> Tensor:
    if not batched:
        return tensor.unsqueeze(0)
    return tensor if batch_first else tensor.transpose(0, 1)


def _check(name: str, tensor: Tensor, embed_dim: int, dtype: torch.dtype, dims: int) -> None:
    if tensor.dim() not in (2, 3):
        raise ValueError(
            f"{name} has shape {tuple(tensor.shape)}; expected (batch, length, {embed_dim}), or "
            f"(length, {embed_dim}) for a single sequence"
        )
    if tensor.dim() != dims:
        raise ValueError(f"{name} has {tensor.dim()} dimensions; expected {dims}, as query")
    if tensor.shape[-1] != embed_dim:
        raise ValueError(f"{name} has width {tensor.shape[-1]}; expected embed_dim = {embed_dim}")
    # in this order: autocast cannot be asked about every kind of device
    if tensor.dtype != dtype and not torch.is_autocast_enabled(tensor.device.type):
        raise ValueError(f"{name} has dtype {tensor.dtype}; expected {dtype}, as the layer")
