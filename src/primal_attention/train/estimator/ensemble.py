"""Networks and the frozen bank together, weighed by what they say of cases that they did not see.

    outputs = a nets + b frozen,    nets = temperature * mean of networks on all cases

Probabilities are the softmax of the outputs: a class that one of both excludes is excluded. Further
networks, which leave a fold out, are there for the choice of the temperature, and then of a and b;
what learned from fewer cases has no say in the answers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...attention.primal.readout import drawing, variational_layers
from ...tasks.series import Floats, Normaliser, SeriesData, SeriesSet
from ..config import RunConfig
from .fit import Network, embeddings, outputs
from .rocket.model import RocketModel
from .scaling import Squash, closed

DRAWS = 16  # of a readout that is a Gaussian


@dataclass(frozen=True, eq=False)
class Ensemble:
    """What a fit leaves."""

    config: RunConfig
    channels: int
    squash: Squash | None
    normaliser: Normaliser | None
    nets: tuple[Network, ...]
    frozen: RocketModel | None
    factors: tuple[float, float]  # a, b
    temperature: float = 1.0
    # earlier formats: the share of the networks, where answers are mixed; whether the first network
    # has half of the say, and those that lack a fold the other half
    share: float | None = None
    halves: bool = False

    def answers(
        self, series: Sequence[Floats], answer: Callable[[Tensor], Tensor], device: str
    ) -> Tensor:
        """(cases, c) in float64; `answer` makes answers of outputs."""
        drawn = self._drawn(series)
        nets = []  # by network, then by draw
        if self.nets:
            data = self._data(drawn)
            nets = [self._outputs(in_place(net, device), data) for net in self.nets]
        scores = [] if self.frozen is None else [[self.frozen.scores(drawn)]]
        if not nets:
            return self._joined(scores, answer)
        found = [self._joined([[*said], *scores], answer) for said in zip(*nets, strict=True)]
        return torch.stack(found).mean(0)

    def _joined(self, parts: list[list[Tensor]], answer: Callable[[Tensor], Tensor]) -> Tensor:
        """The answers of outputs of networks, which are one or several, and of the bank."""
        if self.share is None:
            return answer(_sum(self.factors, [self._averaged(part) for part in parts]))
        shares = (self.share, 1.0 - self.share)
        return _sum(shares, [self._averaged([answer(one) for one in part]) for part in parts])

    def _averaged(self, said: Sequence[Tensor]) -> Tensor:
        full, *folds = said
        if self.halves and folds:
            return 0.5 * full + 0.5 * torch.stack(folds).mean(0)
        return torch.stack(tuple(said)).mean(0)

    def _outputs(self, net: Network, data: SeriesData) -> list[Tensor]:
        """Of one network; where its readout is a Gaussian, DRAWS of it."""
        if not variational_layers(net):
            return [self.temperature * outputs(net, data).double()]
        generator, found = torch.Generator().manual_seed(self.config.seed), []
        for _ in range(DRAWS):
            with torch.no_grad(), drawing(net, generator):
                found.append(self.temperature * outputs(net, data).double())
        return found

    def embeddings(self, series: Sequence[Floats], device: str) -> Tensor:
        """Of the first network, (cases, width), or without one the features of the bank."""
        drawn = self._drawn(series)
        if self.nets:
            return embeddings(in_place(self.nets[0], device), self._data(drawn))
        if self.frozen is None:
            raise RuntimeError("an ensemble has networks, the frozen bank, or both")
        return torch.cat(list(self.frozen.extractor.features(drawn).values()), 1)

    def _drawn(self, series: Sequence[Floats]) -> list[Floats]:
        whole = [closed(x) for x in series]
        return whole if self.squash is None else self.squash(whole)

    def _data(self, series: list[Floats]) -> SeriesData:
        cases = unlabelled(series)
        if self.normaliser is not None:
            cases = self.normaliser.apply(cases)
        return SeriesData(cases, max_length=self.nets[0].max_length)


def _sum(weights: tuple[float, float], parts: list[Tensor]) -> Tensor:
    """Of networks and bank, or the one that is there."""
    return weights[0] * parts[0] + weights[1] * parts[1] if len(parts) == 2 else parts[0]


def unlabelled(series: list[Floats]) -> SeriesSet:
    """As the engine has it."""
    return SeriesSet("X", series, -torch.ones(len(series), dtype=torch.int64).numpy(), ())


def in_place(model: Network, device: str) -> Network:
    """A copy on the device, in the type to predict in."""
    if device == "auto":
        found = torch.accelerator.current_accelerator()
        device = found.type if found and torch.accelerator.is_available() else "cpu"
    dtype = torch.float32 if device == "mps" else torch.float64
    try:
        return copy.deepcopy(model).to(device, dtype)
    except (AssertionError, RuntimeError, TypeError, ArithmeticError) as error:  # torch raises any
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(
            f"device {device!r} cannot be used here ({reason}); expected one that can, as with "
            "set_params(device='cpu')"
        ) from error
