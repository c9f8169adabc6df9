"""Responses to features: each part of the features is one way to sum up z over time.

With u_t = (t + 1/2) / T, b the first threshold of a kernel and k* the kernel of a group with the
greatest response at t, for every kernel k (for every group, where it says so):

    max_counts        sqrt(sum_t 1[k = k*] z_t)                                      (Hydra)
    min_counts        sqrt(sum_t 1[z_t is the least of its group])                   (Hydra)
    proportions       mean_t 1[z_t > b], for both thresholds                         (MiniRocket)
    excess            mean_t max(z_t - b, 0)
    maxima            max_t z_t
    winner_cosines    mean_t 1[k = k*] z_t cos(pi j u_t), j = 1 ... 5
    positive_cosines  mean_t 1[z_t > b] cos(pi j u_t), j = 1 ... 5
    tied              s((1/T) sum_t phi(z_t) (V z_t)^T) of a group, phi(z) = z / |z|,
                      s(a) = sign(a) sqrt(|a|): a primal representation with tied weights
    raw               the series itself, at most 128 points
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

import torch
from torch import Tensor

from .bank import BIASES, MIXED, Layer, Workspace

COSINES = 5
# the parts of the features, and how many features a kernel has in each; the raw part has no kernels
PARTS: Mapping[str, int] = {
    "max_counts": 1,
    "min_counts": 1,
    "proportions": BIASES,
    "excess": 1,
    "maxima": 1,
    "winner_cosines": COSINES,
    "positive_cosines": COSINES,
    "tied": MIXED,
    "raw": 0,
}


class Times:
    """What the pooling of a chunk of cases needs to know about time."""

    def __init__(self, lengths: Tensor, stride: int) -> None:
        """lengths (B,); every stride-th position counts, from the first."""
        positions = torch.arange(0, int(lengths.max()), stride)  # (n,)
        inside = positions < lengths[:, None]  # (B, n)
        counts = inside.sum(1, keepdim=True)
        u = (positions + 0.5) / lengths[:, None]
        j = torch.arange(COSINES + 1)
        waves = torch.cos(torch.pi * u[..., None] * j) * (inside / counts)[..., None]
        self.lengths = lengths
        self.waves = waves.float()  # (B, n, 1 + COSINES): cos(pi j u_t) / n, 0 behind the end
        self.mean = self.waves[..., :1].contiguous()  # (B, n, 1)
        ragged = not bool(inside.all())
        behind = torch.zeros_like(inside, dtype=torch.float32).masked_fill_(~inside, -torch.inf)
        self.behind = behind[:, None, None] if ragged else None  # (B, 1, 1, n)


def pool(
    z: Tensor, layer: Layer, times: Times, parts: Container[str], work: Workspace
) -> Iterator[tuple[str, Tensor]]:
    """The parts of one layer by name, each (B, G * K * width)."""
    cases, groups = z.shape[:2]
    buffer, row = work.get("buffer", *z.shape), work.get("row", cases, groups, 1, z.shape[3])
    lengths = times.lengths[:, None].float()
    first, second = layer.biases.split(1, -1)  # (G, K, 1)

    def over_time(weights: Tensor) -> Tensor:
        """The buffer's sums over time (B, G * K, number of weights)."""
        return torch.bmm(buffer.view(cases, -1, z.shape[3]), weights)

    if "max_counts" in parts or "winner_cosines" in parts:
        torch.eq(z, torch.amax(z, 2, keepdim=True, out=row), out=buffer)
        buffer.mul_(z)
        won = over_time(times.waves)
        if "max_counts" in parts:
            yield "max_counts", (won[..., 0] * lengths).clamp_(min=0.0).sqrt_()
        if "winner_cosines" in parts:
            yield "winner_cosines", won[..., 1:].flatten(1)
    if "min_counts" in parts:
        torch.eq(z, torch.amin(z, 2, keepdim=True, out=row), out=buffer)
        yield "min_counts", (over_time(times.mean)[..., 0] * lengths).sqrt_()
    if "proportions" in parts or "positive_cosines" in parts:
        torch.gt(z, first, out=buffer)
        above = over_time(times.waves)
        if "positive_cosines" in parts:
            yield "positive_cosines", above[..., 1:].flatten(1)
        if "proportions" in parts:
            torch.gt(z, second, out=buffer)
            yield "proportions", torch.cat([above[..., :1], over_time(times.mean)], 2).flatten(1)
    if "excess" in parts:
        torch.sub(z, first, out=buffer).clamp_(min=0.0)
        yield "excess", over_time(times.mean).flatten(1)
    if "maxima" in parts:
        inside = z if times.behind is None else torch.add(z, times.behind, out=buffer)
        yield "maxima", inside.amax(3).flatten(1)
    if "tied" in parts:
        yield "tied", _tied(z, layer, times, buffer, row)


def _tied(z: Tensor, layer: Layer, times: Times, buffer: Tensor, row: Tensor) -> Tensor:
    """phi(z) (V z)^T = (z z^T / |z|) V^T, so V comes after the sum over time."""
    torch.mul(z, z, out=buffer)
    torch.sum(buffer, 2, keepdim=True, out=row)
    row.clamp_(min=1e-12).rsqrt_().mul_(times.mean.view(len(z), 1, 1, -1))
    torch.mul(z, row, out=buffer)  # (B, G, K, n), phi(z_t) / n
    second = torch.matmul(buffer, z.mT)  # (B, G, K, K)
    tied = torch.matmul(second, layer.mixing.mT)  # (B, G, K, MIXED)
    return (tied.abs().sqrt_() * tied.sign()).flatten(1)
