"""What the spectrum and the KSVD diagnostics of a primal layer need of a sequence: small matrices.

    K = Phi_q M Phi_k^T        Phi_q = Q_q R_q,  Phi_k = Q_k R_k  (thin QR),  M = F_X^T F_X or I

so K has the singular values of the p x p matrix `R_q M R_k^T`. The triangles are accumulated over
chunks of positions: O(N p^2) time, and memory that does not grow with N beyond the input itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..distributed import WHOLE
from ..kernels import reference
from ..kernels.anchors import anchor_rows
from ..kernels.scan import running_mean
from ..theory.features import Cosine

if TYPE_CHECKING:
    from ..attention import PrimalAttention
    from ..attention.inputs import Sequences

_CHUNK_NUMBERS = 1 << 18  # features held at a time: more would leave the cache


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over the positions, per sample and head, in float64 (float32 where a device has none).

    `triangle_q, triangle_k (B, h, p, p)`: R_q and R_k. `cross (B, h, p, p)`: Phi_k^T Phi_q, of
    self-attention where asked for, else None. `anchors (B, h, n, p)`: F_X, None for the identity.
    `duals`, each (B, h, p, s): sums `phi_q h_e^T` and `phi_k h_r^T` of tied weights, else None.
    `count_q, count_k (B,)`: valid positions.
    """

    triangle_q: Tensor
    triangle_k: Tensor
    count_q: Tensor
    count_k: Tensor
    cross: Tensor | None = None
    anchors: Tensor | None = None
    duals: list[Tensor] | None = None

    def core(self) -> Tensor:
        """A matrix (B, h, p, p) with the singular values of K."""
        if self.anchors is None:
            return self.triangle_q @ self.triangle_k.mT
        # two products with F_X, not one with its square, which keeps small singular values exact
        return (self.triangle_q @ self.anchors.mT) @ (self.anchors @ self.triangle_k.mT)

    def singular_values(self) -> Tensor:
        """(B, h, min(p, N, M)), descending."""
        sigma: Tensor = torch.linalg.svdvals(self.core())
        return sigma

    def asymmetry(self) -> Tensor | None:
        """`||K - K^T||_F / ||K + K^T||_F (B, h)`: 0 symmetric, 1 neither, large antisymmetric.

        From `||K -+ K^T||^2 = 2 ||K||^2 -+ 2 tr(K K)` and `tr(K K) = tr((M Phi_k^T Phi_q)^2)`.
        """
        if self.cross is None:
            return None
        inner = self.cross
        if self.anchors is not None:
            inner = self.anchors.mT @ self.anchors @ inner
        trace = (inner * inner.mT).sum((-2, -1))
        energy = self.core().square().sum((-2, -1))
        difference, total = (energy - trace).clamp(min=0), (energy + trace).clamp(min=0)
        return torch.where(energy > 0, (difference / total).sqrt(), 0.0)


@torch.no_grad()
def primal_moments(layer: PrimalAttention, call: Sequences, *, products: bool = False) -> Moments:
    """The moments of a primal layer on one call, chunk by chunk where its features allow it; with
    `products` also `cross`, and `duals` of tied weights. The kernel is that of `layer.factors`;
    with `products` and positive features that of `layer.ksvd_problem`.

    Tied causal layers have a triangular kernel, which is no product of factors: ValueError.
    """
    if isinstance(layer.feature_map, Cosine) and not (layer.causal and layer.weights == "tied"):
        return _by_chunks(layer, call, products)
    # Features that are normalised over all positions need them all at once.
    if products and not (layer.causal and layer.weights == "tied"):
        return _of_problem(layer, call)
    factors = layer.factors(*_given(layer, call))
    return Moments(_triangle(factors.a), _triangle(factors.b), *_counts(call))


def _given(layer: PrimalAttention, call: Sequences) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Query, key and mask of a call as the layer takes them."""
    x, y = (rows if layer.batch_first else rows.transpose(0, 1) for rows in (call.x, call.y))
    return x, None if call.is_self else y, call.ignore


def _of_problem(layer: PrimalAttention, call: Sequences) -> Moments:
    problem = layer.ksvd_problem(*_given(layer, call))
    phi_q, phi_k = (phi.to(_wide(phi)) for phi in problem.features())
    counts, duals = _counts(call), None
    if layer.weights == "tied":
        size = counts[1].clamp(min=1).to(phi_k.dtype)[:, None, None, None]
        duals = [problem.w_r * size, problem.w_e * size]
    return Moments(
        _triangle(phi_q), _triangle(phi_k), *counts,
        phi_k.mT @ phi_q if call.is_self else None,
        None if problem.f is None else problem.f.to(phi_q.dtype), duals,
    )  # fmt: skip


def _by_chunks(layer: PrimalAttention, call: Sequences, products: bool) -> Moments:
    dtype = layer.in_proj_weight.dtype
    x = call.x.to(dtype)
    call = call._replace(x=x, y=x if call.is_self else call.y.to(dtype))
    sides = (0, 1) if call.is_self else (1,)
    keys = _Sums(layer, len(call.y), sides, products)
    keys.add(call.y, call.ignore)
    queries = keys
    if not call.is_self:
        queries = _Sums(layer, len(call.x), (0,), products=False)
        queries.add(call.x, None)
    anchors = None
    if layer.anchors is not None:
        _, rows = anchor_rows(call.y, call.ignore, layer.anchors, layer.anchor_source)
        heads = rows.unflatten(-1, (layer.num_heads, layer.head_dim)).transpose(1, 2)
        anchors = heads.to(_wide(rows))  # (B, h, n, p)
    triangles = queries.triangles[0], keys.triangles[1]
    return Moments(*triangles, *_counts(call), keys.cross, anchors, keys.duals)


class _Sums:
    """Triangles of the query (side 0) and key features (side 1) of rows, and products of them."""

    def __init__(
        self, layer: PrimalAttention, batch: int, sides: tuple[int, ...], products: bool
    ) -> None:
        self.layer, self.sides = layer, sides
        p, weight = layer.head_dim, layer.in_proj_weight
        shape = (batch, layer.num_heads, p, p)
        zeros = weight.new_zeros(shape, dtype=_wide(weight))
        self.triangles = [zeros[..., :0, :]] * 2
        self.cross = zeros if products and len(sides) == 2 else None
        self.duals: list[Tensor] | None = None
        if products and layer.weights == "tied":
            self.duals = [zeros.new_zeros(*shape[:3], layer.rank) for _ in range(2)]

    def add(self, rows: Tensor, ignore: Tensor | None) -> None:
        layer = self.layer
        maps = layer.maps(rows.dtype)
        batch, length, width = rows.shape
        chunk = max(_CHUNK_NUMBERS // (2 * batch * width), 4 * layer.head_dim)
        state = layer.init_state(batch) if layer.causal else None
        for first in range(0, length, chunk):
            part = rows[:, first : first + chunk]
            hidden = None if ignore is None else ignore[:, first : first + chunk]
            if state is not None:  # free weights: features of the running mean
                part, sums, seen = running_mean(part, hidden, state.sums, state.seen)
                state = state._replace(sums=sums, seen=seen)
            part = reference.hide(part, hidden)
            phi = reference.features(part, maps.w_in, maps.b_in, layer.feature_map)
            phi = reference.hide_features(phi, hidden).to(_wide(phi))  # (B, 2, h, c, p)
            for side in self.sides:
                self.triangles[side] = _grow(self.triangles[side], phi[:, side])
            if self.cross is not None:
                self.cross += phi[:, 1].mT @ phi[:, 0]
            if self.duals is not None:
                dual = reference.duals(part, layer.dual_weight, layer.num_heads).to(phi.dtype)
                for side in (0, 1):
                    self.duals[side] += phi[:, side].mT @ dual[:, side]


def _triangle(x: Tensor) -> Tensor:
    """R of `x (..., N, r)`, accumulated over chunks in the wide type."""
    triangle = x[..., :0, :].to(_wide(x))
    chunk = max(_CHUNK_NUMBERS // max(x[..., :1, :].numel(), 1), 4 * x.shape[-1])
    for part in x.split(chunk, dim=-2):
        triangle = _grow(triangle, part.to(triangle.dtype))
    return triangle


def _grow(triangle: Tensor, rows: Tensor) -> Tensor:
    """The triangle of a triangle on top of more rows; all of them while they are few."""
    if rows.shape[-2] > 2 * rows.shape[-1]:
        rows = torch.linalg.qr(rows, mode="r").R
    stacked = torch.cat([triangle, rows], dim=-2)
    if stacked.shape[-2] <= stacked.shape[-1]:
        return stacked
    grown: Tensor = torch.linalg.qr(stacked, mode="r").R
    return grown


def _counts(call: Sequences) -> tuple[Tensor, Tensor]:
    """The valid positions that ask and that are asked, (B,) each."""
    queries = WHOLE.count(call.x, call.ignore if call.is_self else None)
    return queries, WHOLE.count(call.y, call.ignore)


def _wide(x: Tensor) -> torch.dtype:
    return torch.float32 if x.device.type == "mps" else torch.float64
