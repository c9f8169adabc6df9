"""Time as a feature map: kernels that depend on t - t' alone (Xu et al., NeurIPS 2019).

Times are float64 until their phases are reduced to a turn: as float32, Unix seconds would be 128
seconds apart. Frequencies are in radians for each unit of the data.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

QUANTILE = 0.05  # of the gaps: what counts as the shortest time


class TimeScales(NamedTuple):
    """The shortest and the longest time that matter, in the units of the data."""

    shortest: float
    longest: float

    @classmethod
    def of(cls, sequences: Iterable[Any]) -> TimeScales:
        """Of sequences of times, each not decreasing: the 5 % quantile of the gaps that are not
        zero, and the longest span."""
        gaps, longest = [], 0.0
        for times in sequences:
            known = np.asarray(times, dtype=np.float64)
            if len(known) > 1:
                gaps.append(np.diff(known))
                longest = max(longest, float(known[-1] - known[0]))
        positive = np.concatenate(gaps) if gaps else np.empty(0)
        positive = positive[positive > 0]
        if not len(positive):
            raise ValueError("all times are equal; expected sequences that take some time")
        return cls(float(np.quantile(positive, QUANTILE)), longest)

    def frequencies(self, count: int) -> Tensor:
        """So many in a geometric row, (count,): from 1 / shortest down to 1 / longest."""
        if count < 1 or not 0 < self.shortest <= self.longest < math.inf:
            raise ValueError(
                f"{count} frequencies for times from {self.shortest} to {self.longest} were asked "
                "for; expected at least one, and 0 < shortest <= longest"
            )
        ends = (-math.log(self.shortest), -math.log(self.longest))
        return torch.linspace(*ends, count, dtype=torch.float64).exp()


def waves(times: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """`cos w_i t` and `sin w_i t`, (..., c), of times (...) and frequencies (c,), in the type of
    the frequencies; the phases are reduced in float64."""
    phases = times.double().unsqueeze(-1) * frequencies.double()
    phases = torch.remainder(phases, 2 * math.pi).to(frequencies.dtype)
    return phases.cos(), phases.sin()


class BochnerTime(nn.Module):
    """Bochner's theorem as a feature map of time, (...) to (..., 2c):

        Phi(t) = c^{-1/2} [cos w_i t, sin w_i t]_i      <Phi(t), Phi(t')> = mean_i cos w_i (t - t')

    Cosine and sine share their frequencies, so the kernel is a function of t - t'; it is 1 at
    t = t'. Frequencies start geometric between 1 / shortest and 1 / longest; see `from_times`.
    """

    def __init__(
        self,
        count: int,
        *,
        shortest: float = 1.0,
        longest: float = 1000.0,
        learn: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        start = TimeScales(shortest, longest).frequencies(count).log()
        start = start.to(device, dtype or torch.get_default_dtype())
        self.log_frequencies = nn.Parameter(start, requires_grad=learn)

    @classmethod
    def from_times(cls, count: int, sequences: Iterable[Any], **options: Any) -> Self:
        """With frequencies for the gaps of a training set: sequences of times."""
        shortest, longest = TimeScales.of(sequences)
        return cls(count, shortest=shortest, longest=longest, **options)

    @property
    def features(self) -> int:
        return 2 * len(self.log_frequencies)

    @property
    def frequencies(self) -> Tensor:
        """w, (c,)."""
        return self.log_frequencies.exp()

    @torch.no_grad()
    def set_scales_(self, scales: TimeScales) -> None:
        """Start the frequencies anew."""
        start = scales.frequencies(len(self.log_frequencies)).log()
        self.log_frequencies.copy_(start)

    def forward(self, times: Tensor) -> Tensor:
        cosines, sines = waves(times, self.frequencies)
        features: Tensor = torch.cat([cosines, sines], -1) * len(self.log_frequencies) ** -0.5
        return features

    def kernel(self, gaps: Tensor) -> Tensor:
        """`K(t - t')` at gaps (...)."""
        return waves(gaps, self.frequencies)[0].mean(-1)

    def extra_repr(self) -> str:
        return f"{len(self.log_frequencies)}, learn={self.log_frequencies.requires_grad}"


class MercerTime(nn.Module):
    """Mercer's theorem for periodic kernels as a feature map of time, (...) to
    (..., k (2 deg + 1)), with one weight c_j for the cosine and the sine of a frequency:

        Phi_T(t) = [sqrt c_0, sqrt c_j cos(2 pi j t / T), sqrt c_j sin(2 pi j t / T)]_{j <= deg}

    for each of k periods T, divided by sqrt k; c = softplus of a parameter, divided by its sum, so
    that the kernel `mean_T sum_j c_j cos(2 pi j (t - t') / T)` is 1 at t = t'.
    """

    def __init__(
        self,
        periods: Sequence[float],
        degree: int = 5,
        *,
        learn: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        known = torch.as_tensor(periods, dtype=torch.float64)
        if known.dim() != 1 or not len(known) or not bool((known > 0).all()):
            raise ValueError(f"periods is {periods!r}; expected one or more positive numbers")
        if degree < 1:
            raise ValueError(f"degree is {degree}; expected at least 1")
        place: dict[str, Any] = {"device": device, "dtype": dtype or torch.get_default_dtype()}
        self.degree = degree
        self.log_periods = nn.Parameter(known.log().to(**place), requires_grad=learn)
        self.weights = nn.Parameter(torch.zeros(len(known), degree + 1, **place))

    @classmethod
    def from_times(
        cls, count: int, sequences: Iterable[Any], degree: int = 5, **options: Any
    ) -> Self:
        """With so many periods for the gaps of a training set: sequences of times."""
        return cls((2 * math.pi / TimeScales.of(sequences).frequencies(count)).tolist(), degree,
                   **options)  # fmt: skip

    @property
    def features(self) -> int:
        return len(self.log_periods) * (2 * self.degree + 1)

    @property
    def shares(self) -> Tensor:
        """c, (k, deg + 1): every row sums to 1."""
        positive = nn.functional.softplus(self.weights)
        return positive / positive.sum(-1, keepdim=True)

    def forward(self, times: Tensor) -> Tensor:
        cosines, sines = self._waves(times)  # (..., k, deg)
        size = (self.shares / len(self.log_periods)).sqrt()
        constant = size[:, :1].expand(*times.shape, -1, 1)
        parts = [constant, size[:, 1:] * cosines, size[:, 1:] * sines]
        return torch.cat(parts, -1).flatten(-2)

    def kernel(self, gaps: Tensor) -> Tensor:
        """`K(t - t')` at gaps (...)."""
        cosines = self._waves(gaps)[0]
        share = self.shares
        return (share[:, 0] + (share[:, 1:] * cosines).sum(-1)).mean(-1)

    def _waves(self, times: Tensor) -> tuple[Tensor, Tensor]:
        orders = torch.arange(1, self.degree + 1, device=self.log_periods.device)
        frequencies = 2 * math.pi * orders * (-self.log_periods).exp().unsqueeze(-1)
        cosines, sines = waves(times, frequencies.flatten())
        return cosines.unflatten(-1, frequencies.shape), sines.unflatten(-1, frequencies.shape)

    def extra_repr(self) -> str:
        return f"{len(self.log_periods)} periods, degree={self.degree}"
