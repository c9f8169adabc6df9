"""Valid positions moved together, so that neighbours and numbers count valid positions only."""

from __future__ import annotations

import torch
from torch import Tensor


def valid_first(ignore: Tensor) -> tuple[Tensor, Tensor]:
    """Two permutations (B, N) of the positions of ignore (B, N): `order` lists the valid ones in
    their order, then the ignored ones; `place` is its inverse, where each position went."""
    # every position knows its place, so no sort: slower, and without a stable form in ONNX
    valid = ~ignore
    behind = valid.sum(-1, keepdim=True) + ignore.cumsum(-1)
    place = torch.where(valid, valid.cumsum(-1), behind) - 1
    position = torch.arange(ignore.shape[-1], device=ignore.device).expand_as(place)
    return torch.zeros_like(place).scatter(1, place, position), place


def permute(rows: Tensor, order: Tensor) -> Tensor:
    """rows (B, N, c) or (B, h, N, c) in the order (B, N)."""
    index = order.unsqueeze(-1) if rows.dim() == 3 else order[:, None, :, None]
    return rows.gather(-2, index.expand(rows.shape))


def positions(rows: Tensor, ignore: Tensor | None) -> Tensor:
    """How many valid positions there are up to each of rows (B, N, ...): (B, N), from 1 on."""
    if ignore is not None:
        return (~ignore).cumsum(1)
    batch, length = rows.shape[:2]
    return torch.arange(1, length + 1, device=rows.device).expand(batch, length)
