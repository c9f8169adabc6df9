"""What the classifier and the regressor on the frozen bank share."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ....tasks.series import SeriesSet
from ..parameters import plain
from ..reading import SeriesEstimator
from . import saving
from .model import RocketModel, Settings, fit_model, number_of_threads, threads
from .pooling import PARTS


class RocketEstimator(TransformerMixin, SeriesEstimator):  # type: ignore[misc]
    """Parameters, features, files; see `PrimalRocketClassifier`."""

    model_: RocketModel

    def __init__(
        self,
        *,
        parts: str | Sequence[str] = tuple(PARTS),
        groups: int = 32,
        max_positions: int = 8192,
        landmarks: int = 2000,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.parts = parts
        self.groups = groups
        self.max_positions = max_positions
        self.landmarks = landmarks
        self.n_jobs = n_jobs
        self.random_state = random_state

    def transform(self, X: Any) -> npt.NDArray[np.float32]:
        """The features of all parts (cases, features), as the ridges take them."""
        check_is_fitted(self)
        series = self._read(X, self._channels)
        with threads(self._settings().threads):
            features = self.model_.extractor.features(series)
        return torch.cat(list(features.values()), 1).numpy()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator as a folder of JSON and safetensors.

        One that was saved there before is replaced, unless there are other files with it. A
        RandomState is saved as None.
        """
        check_is_fitted(self)
        saving.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The estimator in a folder; its predictions are those of the saved one to the last bit
        on the same machine."""
        return saving.load(cls, path)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # features are float32
        return tags

    @property
    def alphas_(self) -> dict[str, float]:
        """The penalty of each part, in units of the mean diagonal of its Gram matrix."""
        check_is_fitted(self)
        return {part: ridge.alpha for part, ridge in self.model_.ridges.items()}

    @property
    def weights_(self) -> dict[str, float]:
        """The weight of each part."""
        check_is_fitted(self)
        return dict(zip(self.model_.ridges, self.model_.weights.tolist(), strict=True))

    @property
    def _channels(self) -> int:
        return self.model_.extractor.bank.channels

    def _settings(self) -> Settings:
        return Settings.of(self.get_params())

    def _fit(
        self, cases: SeriesSet, targets: Tensor, weigh: Callable[[Tensor, Tensor], Tensor]
    ) -> Tensor:
        """Fits the model; the scores (cases, c) of left-out cases."""
        settings = self._settings()
        with threads(settings.threads):
            self.model_, unseen = fit_model(settings, cases, targets, weigh)
        return unseen.alone

    def _scores(self, X: Any) -> Tensor:
        """(cases, c)"""
        check_is_fitted(self)
        series = self._read(X, self._channels)
        with threads(number_of_threads(plain(self.n_jobs))):
            return self.model_.scores(series)
