"""What a set of series asks for, classes or values: in this alone do the estimators differ."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from ...tasks.classification.objective import Classification
from ...tasks.regression.objective import Regression
from ...tasks.series import Floats, Integers
from .rocket.stacking import SPREAD, class_weights, value_weights

PRIOR = 4.0  # cases that speak for equal weights of networks and frozen bank


@dataclass(frozen=True, eq=False)
class Problem(ABC):
    """Targets (N,) of the cases, and how answers to them are judged."""

    targets: Tensor

    objective: ClassVar[type[Classification]]

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Numbers c that a model gives for a case."""

    @property
    @abstractmethod
    def labels(self) -> Integers:
        """(N,), the groups that a split keeps together; -1 for all where there are none."""

    @abstractmethod
    def ridge_targets(self) -> Tensor:
        """(N, c) in float64."""

    @abstractmethod
    def weigh(self, scores: Tensor, targets: Tensor, spread: float = SPREAD) -> Tensor:
        """The weights (parts,) of scores (parts, N, c) of left-out cases for ridge targets;
        `spread` holds them together."""

    @staticmethod
    @abstractmethod
    def answers(outputs: Tensor) -> Tensor:
        """Probabilities, or values, (N, c) from the outputs of a model."""

    @abstractmethod
    def loss(self, answers: Tensor) -> Tensor:
        """Of each case (N,)."""

    def temperature(self, outputs: Tensor) -> float:
        """The factor of outputs (N, c) of held-out cases that makes them most likely."""
        return float(self.weigh(outputs[None], self.ridge_targets())[0])

    def factors(self, nets: Tensor, frozen: Tensor) -> tuple[float, float]:
        """Those of two outputs (N, c) of held-out cases in the sum that makes them most likely.

        Both are at their own temperature already, so PRIOR speaks for equal factors.
        """
        targets = self.ridge_targets()
        both = self.weigh(torch.stack([nets, frozen]), targets, PRIOR / len(targets))
        return float(both[0]), float(both[1])

    def order(self, seed: int) -> Integers:
        """All cases by their target, those of one in random order."""
        shuffled = np.random.default_rng(seed).permutation(len(self.targets))
        return shuffled[np.argsort(self.targets.numpy()[shuffled], kind="stable")]


@dataclass(frozen=True, eq=False)
class Classes(Problem):
    """Targets are the indices of `count` classes."""

    count: int

    objective = Classification

    @property
    def outputs(self) -> int:
        return self.count

    @property
    def labels(self) -> Integers:
        found: Integers = self.targets.numpy()
        return found

    def ridge_targets(self) -> Tensor:
        return 2.0 * one_hot(self.targets, self.count).double() - 1.0

    def weigh(self, scores: Tensor, targets: Tensor, spread: float = SPREAD) -> Tensor:
        return class_weights(scores, targets.argmax(1), spread)

    @staticmethod
    def answers(outputs: Tensor) -> Tensor:
        return outputs.softmax(1)

    def loss(self, answers: Tensor) -> Tensor:
        return -answers.gather(1, self.targets[:, None])[:, 0].clamp(min=1e-12).log()


@dataclass(frozen=True, eq=False)
class Numbers(Problem):
    """Targets are numbers of mean 0 and deviation 1, answers estimates of them."""

    objective = Regression

    @classmethod
    def of(cls, y: Floats) -> tuple[Numbers, float, float]:
        """For values y (N,), with the mean and the deviation that were taken out of them."""
        centre, deviation = float(y.mean()), float(y.std()) or 1.0
        return cls(torch.from_numpy((y - centre) / deviation)), centre, deviation

    @property
    def outputs(self) -> int:
        return 1

    @property
    def labels(self) -> Integers:
        return np.full(len(self.targets), -1, dtype=np.int64)

    def ridge_targets(self) -> Tensor:
        return self.targets[:, None]

    def weigh(self, scores: Tensor, targets: Tensor, spread: float = SPREAD) -> Tensor:
        return value_weights(scores, targets, spread)

    @staticmethod
    def answers(outputs: Tensor) -> Tensor:
        return outputs

    def loss(self, answers: Tensor) -> Tensor:
        return (answers[:, 0] - self.targets).square()
