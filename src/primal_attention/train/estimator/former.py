"""What PrimalFormerClassifier and PrimalFormerRegressor share."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ...tasks.series import Floats, Normaliser
from . import saving
from .building import Built, build
from .ensemble import Ensemble, unlabelled
from .fit import Network
from .grid import TimeGrid, read_times
from .parameters import plain
from .problem import Problem
from .reading import SeriesEstimator
from .rocket.model import number_of_threads, threads
from .settings import Settings


class FormerEstimator(TransformerMixin, SeriesEstimator):  # type: ignore[misc]
    """Parameters, fit, embeddings, files; see `PrimalFormerClassifier`."""

    ensemble_: Ensemble
    history_: list[dict[str, Any]]
    n_iter_: int
    grid_: TimeGrid | None

    def __init__(
        self,
        *,
        ensemble: str = "best",
        attention: str | Sequence[str] = "primal",
        layers: int = 2,
        weights: str = "tied",
        feature_map: str = "softmax",
        rank: int | None = None,
        rank_multi: int = 10,
        anchor_rule: str = "sample",
        eta: float = 0.1,
        options: Mapping[str, Any] | None = None,
        width: int = 64,
        heads: int = 4,
        feedforward: int = 128,
        dropout: float = 0.2,
        normalise: str = "auto",
        optimizer: str = "adamw",
        lr: float = 2e-3,
        weight_decay: float = 0.01,
        batch_size: int = 16,
        steps: int = 400,
        epochs: int = 6,
        networks: int = 2,
        folds: int = 3,
        clip: float | None = 4.0,
        uncertainty: str = "none",
        early_stopping: bool = False,
        validation_fraction: float = 0.2,
        patience: int = 20,
        groups: int = 32,
        max_minutes: float | None = None,
        n_jobs: int | None = None,
        device: str = "cpu",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.ensemble = ensemble
        self.attention = attention
        self.layers = layers
        self.weights = weights
        self.feature_map = feature_map
        self.rank = rank
        self.rank_multi = rank_multi
        self.anchor_rule = anchor_rule
        self.eta = eta
        self.options = options
        self.width = width
        self.heads = heads
        self.feedforward = feedforward
        self.dropout = dropout
        self.normalise = normalise
        self.optimizer = optimizer
        self.lr = lr
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.steps = steps
        self.epochs = epochs
        self.networks = networks
        self.folds = folds
        self.clip = clip
        self.uncertainty = uncertainty
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.groups = groups
        self.max_minutes = max_minutes
        self.n_jobs = n_jobs
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def transform(self, X: Any, times: Any = None) -> npt.NDArray[np.float32]:
        """Embeddings (cases, width): what the last linear layer of `model_` sees; with
        ensemble="fast", the features of the frozen bank."""
        check_is_fitted(self)
        series = self._in_time(self._read(X, self.ensemble_.channels), times)
        with threads(self._threads()):
            found = self.ensemble_.embeddings(series, self.device)
        return found.float().numpy()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator, all networks and the frozen bank, as a folder of JSON and
        safetensors.

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

    @property
    def model_(self) -> Network | None:
        """The first of the networks, on the CPU; None with ensemble="fast"."""
        return self.ensemble_.nets[0] if self.ensemble_.nets else None

    @property
    def normaliser_(self) -> Normaliser | None:
        """The statistics that networks scale by, or None."""
        return self.ensemble_.normaliser

    @property
    def mixture_(self) -> dict[str, float]:
        """The factors of the networks' mean outputs, which have the temperature before, and of the
        frozen bank's scores in the sum that answers are made of."""
        nets, frozen = self.ensemble_.factors
        return {"nets": nets, "frozen": frozen, "temperature": self.ensemble_.temperature}

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # embeddings are float32
        return tags

    def _fit(self, settings: Settings, series: list[Any], problem: Problem) -> Built:
        with threads(
            1
        ):  # a network, or the bank, is one thread's: so the result is always the same
            built = build(settings, unlabelled(series), problem)
        self.ensemble_, self.history_, self.n_iter_ = built.ensemble, built.history, built.steps
        return built

    def _fit_times(self, series: list[Floats], times: Any) -> list[Floats]:
        """The series as they are without times, else on a grid, which is kept."""
        self.grid_ = None if times is None else TimeGrid.fit(read_times(times, series))
        return self._in_time(series, times)

    def _in_time(self, series: list[Floats], times: Any) -> list[Floats]:
        grid = getattr(self, "grid_", None)
        if (grid is None) != (times is None):
            given, expected = ("no times", "times") if times is None else ("times", "no times")
            raise ValueError(f"{given} were given; expected {expected}, as in fit")
        return series if grid is None else grid(series, read_times(times, series))

    def _answers(self, X: Any, kind: type[Problem], times: Any = None) -> Tensor:
        """(cases, c)"""
        check_is_fitted(self)
        series = self._in_time(self._read(X, self.ensemble_.channels), times)
        with threads(self._threads()):
            return self.ensemble_.answers(series, kind.answers, self.device)

    def _threads(self) -> int | None:
        return number_of_threads(plain(self.n_jobs))
