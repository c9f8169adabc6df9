"""Performer: softmax attention by positive random features (FAVOR+)."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..theory.precision import widen
from .base import check_positive
from .cost import Terms
from .factored import FactoredAttention, Factors, LinearState, inner_products, inverse
from .inputs import Sequences
from .registry import register

__all__ = ["PerformerAttention"]


@register(
    "performer",
    paper="Choromanski et al.: Rethinking Attention with Performers, ICLR 2021",
    cost="O(N)",
)
class PerformerAttention(FactoredAttention):
    """Performer attention. Per head of width p, with m random directions w_r in R^p,

        exp(<q, k> / sqrt(p)) ~ 1/m sum_r f_r(q) f_r(k)     f_r(x) = exp(<w_r, u> - |u|^2 / 2)
        K_ij = <f(q_i), f(k_j)> / sum_j <f(q_i), f(k_j)>    u = x / p^(1/4)

    an unbiased estimate of the kernel of softmax attention with positive terms (lemma 1), which K
    approaches as m grows. The directions are orthogonal in blocks of p, with the lengths of
    Gaussian vectors (section 2.4), shared by the heads, and saved with the layer (`projection`).
    They are drawn at construction and by `redraw()`; with redraw_every the further drawings follow
    from the layer's state alone (`next_seed`), so that processes which train together keep the same
    directions.

    Exponentials are kept in range without changing K: a factor
    of one query cancels in its row, so f(q_i) is a softmax over r; a factor of all keys of a sample
    cancels too, so f(k_j) is divided by its maximum over r and the valid keys j. With causal=True
    that maximum runs over the keys up to i and the sums so far are rescaled whenever it grows,
    so that nothing is known of the future and nothing of the past is lost. The published code adds
    1e-4 to all features instead, which biases K; here a row whose sum underflows is zero.

    Args:
        features: m, number of random directions; None takes p log p.
        redraw_every: number of forwards in training mode after which the directions are drawn
            again; None keeps them.
    """

    _weighted = True
    summary = "constant"
    projection: Tensor
    forwards: Tensor
    next_seed: Tensor

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        features: int | None = None,
        redraw_every: int | None = None,
        causal: bool = False,
        bias: bool = True,
        batch_first: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            embed_dim, num_heads, causal=causal, bias=bias,
            batch_first=batch_first, device=device, dtype=dtype,
        )  # fmt: skip
        if features is None:
            features = max(1, round(self.head_dim * math.log(self.head_dim)))
        check_positive(features=features)
        if redraw_every is not None:
            check_positive(redraw_every=redraw_every)
        self.features, self.redraw_every = int(features), redraw_every
        if redraw_every is not None:  # training forwards since the last drawing; seed of the next
            for name in ("forwards", "next_seed"):
                self.register_buffer(name, torch.zeros((), dtype=torch.long, device=device))
        empty = torch.empty(self.features, self.head_dim, device=device, dtype=dtype)
        self.register_buffer("projection", empty)
        self.redraw()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self.redraw()

    def redraw(self) -> None:
        """Draw new random directions, from torch's generator on the CPU."""
        self._draw(torch.default_generator)

    @torch.no_grad()
    def _draw(self, generator: torch.Generator) -> None:
        if self.projection.is_meta:  # nothing to fill: reset_parameters draws, after to_empty
            return
        drawn = orthogonal_gaussian(self.features, self.head_dim, generator)
        # not in place: a graph that waits for its backward pass may hold the old ones
        self.projection = drawn.to(self.projection)
        if self.redraw_every is not None:
            self.forwards.zero_()
            seed = torch.randint(2**62, (), generator=generator, device="cpu")
            self.next_seed.copy_(seed)

    @property
    def _width(self) -> int:
        return self.features

    def cost(self, length: int, batch: int = 1) -> Terms:
        flops, kept, working = super().cost(length, batch)
        exponents = batch * 2 * length * self.num_heads * self.features
        return Terms(flops + 2 * exponents * self.head_dim, kept + exponents, working + exponents)

    def _attend(self, call: Sequences, values: Tensor) -> Tensor:
        if self.training and self.redraw_every is not None:
            if torch.compiler.is_compiling():
                raise ValueError(
                    f"redraw_every is {self.redraw_every} in a compiled graph; expected None, and "
                    "calls of redraw() outside"
                )
            if self.forwards == self.redraw_every:
                self._draw(torch.Generator().manual_seed(int(self.next_seed)))
            self.forwards += 1
        return super()._attend(call, values)

    def _factors(
        self, q: Tensor, k: Tensor, hidden_queries: Tensor | None, hidden_keys: Tensor | None
    ) -> Factors:
        left, (right, _) = self._query_features(q), self._key_features(k, hidden_keys)
        total = right.sum(1)
        return Factors(left, right, total, inverse(inner_products(left, total)))

    def _key_features(self, k: Tensor, hidden: Tensor | None) -> tuple[Tensor, Tensor]:
        logs, offset = self._key_exponents(k)
        with torch.no_grad():
            peak = logs.amax(-1) - offset  # (B, M, h)
            if hidden is not None:
                peak = peak.masked_fill(hidden.unsqueeze(-1), -torch.inf)
            peak = peak.amax(1, keepdim=True)
            peak = peak.masked_fill(peak == -torch.inf, 0.0)  # a sample without any key
        offset = offset + peak
        if hidden is not None:
            offset = offset.masked_fill(hidden.unsqueeze(-1), torch.inf)
        return logs.sub_(offset.unsqueeze(-1)).exp_().to(k.dtype), peak.squeeze(1)

    def _advance(
        self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None, state: LinearState
    ) -> tuple[Tensor, LinearState]:
        q, (logs, offset) = self._query_features(q), self._key_exponents(k)
        weight = logs.detach().amax(-1) - offset.detach()  # (B, h, N): of every key by itself
        k = logs.sub_((offset + weight).unsqueeze(-1)).exp_()
        if ignore is not None:
            weight = weight.masked_fill(ignore.unsqueeze(1), -torch.inf)
        return state.scan(q, k, v, ignore, weight)

    def _query_features(self, q: Tensor) -> Tensor:
        features: Tensor = self._directions(q).softmax(-1)
        return features.to(q.dtype)

    def _key_exponents(self, k: Tensor) -> tuple[Tensor, Tensor]:
        """<w_r, u> (..., m) and |u|^2 / 2 (...), whose difference is log f(k)."""
        return self._directions(k), widen(k).square().sum(-1) * (0.5 / math.sqrt(self.head_dim))

    def _directions(self, rows: Tensor) -> Tensor:
        return widen(F.linear(rows, self.projection.to(rows.dtype) * self.head_dim**-0.25))


def orthogonal_gaussian(rows: int, width: int, generator: torch.Generator | None = None) -> Tensor:
    """Rows (rows, width) that are each Gaussian, and orthogonal within every block of `width`."""
    kind: dict[str, Any] = {"generator": generator, "dtype": torch.float64, "device": "cpu"}
    blocks = torch.randn(math.ceil(rows / width), width, width, **kind)
    q, r = torch.linalg.qr(blocks)
    q = q * r.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)  # uniform over the rotations
    lengths = torch.randn(rows, width, **kind).norm(dim=-1, keepdim=True)
    drawn: Tensor = q.flatten(0, 1)[:rows] * lengths
    return drawn
