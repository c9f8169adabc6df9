"""Mixtures of log-normal distributions: how long until the next event, in the units of the data."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

HALVINGS = 60  # of the interval of a quantile


class LogNormalMixture(NamedTuple):
    """`p(tau) = sum_k w_k N(log tau; mu_k, s_k) / tau`; all fields (..., K). The log of the weights
    is normalised."""

    log_weights: Tensor
    means: Tensor
    log_scales: Tensor

    def log_prob(self, gaps: Tensor) -> Tensor:
        """Log-densities at gaps (...), positive ones."""
        log = gaps.log().to(self.means.dtype).unsqueeze(-1)
        z = (log - self.means) * (-self.log_scales).exp()
        parts = self.log_weights - 0.5 * z.square() - self.log_scales - 0.5 * math.log(2 * math.pi)
        return parts.logsumexp(-1) - log.squeeze(-1)

    def cdf(self, gaps: Tensor) -> Tensor:
        """`P(tau <= gap)` at gaps (...)."""
        log = gaps.log().to(self.means.dtype).unsqueeze(-1)
        return self._below(log)

    def quantile(self, share: float) -> Tensor:
        """The gaps (...) that are not exceeded with this probability, by bisection of the log; what
        no number holds is the greatest."""
        if not 0 < share < 1:
            raise ValueError(f"share is {share}; expected a number in (0, 1)")
        # that of the mixture lies between those of its parts
        z = math.sqrt(2) * torch.erfinv(self.means.new_tensor(2 * share - 1).double())
        ends = self.means.double() + self.log_scales.double().exp() * z
        low, high = ends.amin(-1), ends.amax(-1)
        wide = LogNormalMixture(*(part.double() for part in self))
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            enough = wide._below(middle.unsqueeze(-1)) >= share
            low, high = torch.where(enough, low, middle), torch.where(enough, middle, high)
        return high.exp().clamp(max=torch.finfo(high.dtype).max)

    def median(self) -> Tensor:
        return self.quantile(0.5)

    def mean(self) -> Tensor:
        """The expected gap (...). A few heavy tails decide it: the median says more."""
        parts = self.log_weights + self.means + 0.5 * (2 * self.log_scales).exp()
        return parts.logsumexp(-1).exp()

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """One gap for each (...)."""
        shape = self.means.shape
        shares = self.log_weights.exp().reshape(-1, shape[-1])
        part = torch.multinomial(shares, 1, generator=generator).view(*shape[:-1], 1)
        mean, scale = (t.gather(-1, part).squeeze(-1) for t in (self.means, self.log_scales.exp()))
        noise = torch.randn(mean.shape, dtype=mean.dtype, generator=generator).to(mean.device)
        return (mean + scale * noise).exp()

    def _below(self, log: Tensor) -> Tensor:
        z = (log - self.means) * (-self.log_scales).exp()
        share: Tensor = (self.log_weights.exp() * torch.special.ndtr(z)).sum(-1)
        return share
