"""What one forward of a primal layer leaves for J (equation 11)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .objective import Positions, objective

Count = Tensor | int  # (B,), or one number for all samples


class Parts(NamedTuple):
    """What the terms of J are made of. Tied weights come as one, `w_e (B, z, h, ., .)`."""

    energy: Tensor  # (B, z, h, s): sums of squared e over queries, of squared r over keys
    sqrt_lambda: Tensor  # (h, s)
    w_e: Tensor  # (h, ., .)
    w_r: Tensor | None  # (h, ., .)

    def terms(self) -> Tensor:
        """`sum_i e_i^T Lambda e_i`, `sum_j r_j^T Lambda r_j`, `Tr(W_e^T W_r)`: (3, B, h)."""
        energies = self.energies()
        return torch.cat([energies, self.trace().expand_as(energies[:1])])

    def energies(self) -> Tensor:
        """(z, B, h)."""
        lam = self.sqrt_lambda.to(self.energy.dtype).square()
        return (self.energy * lam).sum(-1).transpose(0, 1)

    def trace(self) -> Tensor:
        """(B, h) of tied weights, else (h)."""
        w_e, w_r = self.w_e.unbind(1) if self.w_r is None else (self.w_e, self.w_r)
        dtype = self.energy.dtype
        return (w_e.to(dtype) * w_r.to(dtype)).sum((-2, -1))

    def gradient(self, g: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """The gradients of the parts from that of the terms, g (3, B, h); differentiable."""
        dtype = self.energy.dtype
        sqrt_lambda = self.sqrt_lambda.to(dtype)
        scaled = g[:2].transpose(0, 1).unsqueeze(-1) * sqrt_lambda  # (B, z, h, s)
        d_energy = scaled * sqrt_lambda
        d_lambda = (scaled * self.energy).sum((0, 1)).mul(2.0).to(self.sqrt_lambda.dtype)
        if self.w_r is None:  # the gradient of each is the other
            d_w = g[2][:, None, :, None, None] * self.w_e.flip(1).to(dtype)
            return d_energy, d_lambda, d_w.to(self.w_e.dtype), None
        g_trace = g[2].sum(0).view(-1, 1, 1)
        d_w_e, d_w_r = g_trace * self.w_r.to(dtype), g_trace * self.w_e.to(dtype)
        return d_energy, d_lambda, d_w_e.to(self.w_e.dtype), d_w_r.to(self.w_r.dtype)


class Entry(NamedTuple):
    """One forward of one layer: everything that J needs."""

    terms: Tensor  # (3, B, h), see `Parts.terms`
    count_e: Count  # valid queries
    count_r: Count  # valid keys
    with_grad: bool = True  # False: it ran under torch.no_grad
    square: Tensor | None = None  # the mean over samples of J^2, where the pass made it

    def objectives(self, positions: Positions = "mean") -> Tensor:
        """(B, h): J of every sample and head."""
        energy_e, energy_r, trace = self.terms
        if positions == "sum":
            return objective(energy_e, energy_r, trace, positions="sum")
        count_e, count_r = (
            count.unsqueeze(-1) if isinstance(count, Tensor) else count
            for count in (self.count_e, self.count_r)
        )
        return objective(energy_e, energy_r, trace, count_e=count_e, count_r=count_r)

    def present(self) -> Tensor:
        """(B,): whether a sample has valid queries and keys; else it is none."""
        count_e, count_r = self.counts()
        return (count_e > 0) & (count_r > 0)

    def counts(self) -> tuple[Tensor, Tensor]:
        """The valid queries and keys of every sample, (B,) each."""
        count_e, count_r = (
            count
            if isinstance(count, Tensor)
            else torch.full(self.terms.shape[1:2], count, device=self.terms.device)
            for count in (self.count_e, self.count_r)
        )
        return count_e, count_r
