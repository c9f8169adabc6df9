"""The bank, the ridges on its features and their weights: what an estimator fits and keeps."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ....tasks.series import Floats, Integers, SeriesSet
from ..parameters import check_integer, plain, seed_of
from .features import Extractor
from .pooling import PARTS
from .ridge import Ridge, Scaling, Unseen, fit_ridge

FEATURES = 2**25  # numbers of features that are held at once beside those of the landmarks


@dataclass(frozen=True)
class Settings:
    """The parameters of an estimator, checked."""

    parts: tuple[str, ...] = tuple(PARTS)
    groups: int = 32
    max_positions: int = 8192
    landmarks: int = 2000
    seed: int = 0
    threads: int | None = None

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Settings:
        """A ValueError names the first wrong parameter and what was expected."""
        given = {name: plain(value) for name, value in parameters.items()}
        for name, least in (("groups", 1), ("max_positions", 1), ("landmarks", 2)):
            check_integer(name, given[name], least)
        return cls(
            _parts(given["parts"]),
            given["groups"],
            given["max_positions"],
            given["landmarks"],
            seed_of(given["random_state"]),
            number_of_threads(given["n_jobs"]),
        )


@dataclass(frozen=True, eq=False)
class RocketModel:
    """scores = sum_p weights_p ridge_p(features of part p)."""

    extractor: Extractor
    ridges: dict[str, Ridge]
    weights: Tensor  # (parts,)

    def scores(self, series: Sequence[Floats]) -> Tensor:
        """(cases, c) in float64."""
        found = []
        for chunk in _pieces(series, self.extractor):
            features = self.extractor.features(chunk)
            parts = [ridge.scores(features[part]) for part, ridge in self.ridges.items()]
            found.append(torch.tensordot(self.weights, torch.stack(parts), 1))
        return torch.cat(found)


def fit_model(
    settings: Settings,
    cases: SeriesSet,
    targets: Tensor,
    weigh: Callable[[Tensor, Tensor], Tensor],
    folds: Sequence[Integers] = (),
) -> tuple[RocketModel, Unseen]:
    """The model and its scores (N, c) of left-out cases, for targets (N, c).

    `weigh` gives the weights of the parts for the left-out scores (parts, N, c) and the targets,
    both in one order of the cases. What is said of folds has weights of its own.
    """
    extractor = Extractor.fit(
        cases,
        parts=settings.parts,
        groups=settings.groups,
        max_positions=settings.max_positions,
        seed=settings.seed,
    )
    order = np.arange(len(cases))
    if len(cases) > settings.landmarks:
        order = np.random.default_rng(settings.seed).permutation(order)
    series = [cases.series[i] for i in order]
    ordered = targets[torch.from_numpy(order)]
    scaled, scalings = {}, {}
    for part, features in extractor.features(series[: settings.landmarks]).items():
        scalings[part] = Scaling.fit(features)
        scaled[part] = scalings[part].apply_(features)
    others = _products(extractor, series[settings.landmarks :], scaled, scalings)
    back = torch.from_numpy(np.argsort(order))
    left_out = [back[torch.from_numpy(fold)] for fold in folds]
    ridges, unseen = {}, []
    for part in settings.parts:
        ridges[part], scores = fit_ridge(
            scaled.pop(part), scalings[part], ordered, others.get(part), left_out
        )
        unseen.append(scores)

    def joined(scores: list[Tensor]) -> tuple[Tensor, Tensor]:
        stacked = torch.stack(scores)  # (parts, N, c)
        weights = weigh(stacked, ordered)
        return weights, torch.tensordot(weights, stacked, 1)[back]

    weights, alone = joined([scores.alone for scores in unseen])
    by_folds = [scores.by_folds for scores in unseen if scores.by_folds is not None]
    said = Unseen(alone, joined(by_folds)[1] if by_folds else None)
    return RocketModel(extractor, ridges, weights), said


def _products(
    extractor: Extractor,
    series: Sequence[Floats],
    landmarks: Mapping[str, Tensor],
    scalings: Mapping[str, Scaling],
) -> dict[str, Tensor]:
    """The products (cases, m) of the other cases' features with those of the landmarks, by part;
    empty if there are no other cases."""
    found: dict[str, list[Tensor]] = {}
    for chunk in _pieces(series, extractor):
        for part, features in extractor.features(chunk).items():
            product = scalings[part].apply_(features) @ landmarks[part].T
            found.setdefault(part, []).append(product)
    return {part: torch.cat(products) for part, products in found.items()}


def _pieces(series: Sequence[Floats], extractor: Extractor) -> Iterator[Sequence[Floats]]:
    """So many cases at once that their features fit into FEATURES."""
    step = max(FEATURES // sum(extractor.widths().values()), 1)
    for start in range(0, len(series), step):
        yield series[start : start + step]


@contextmanager
def threads(number: int | None) -> Iterator[None]:
    """torch computes with so many threads; None leaves their number as it is."""
    if number is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(min(number, os.cpu_count() or 1))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _parts(parts: Any) -> tuple[str, ...]:
    known = ", ".join(PARTS)
    given = (parts,) if isinstance(parts, str) else tuple(parts)
    if not given or len(set(given)) < len(given) or not set(given) <= set(PARTS):
        raise ValueError(f"parts is {parts!r}; expected different ones of {known}")
    return tuple(part for part in PARTS if part in given)


def number_of_threads(n_jobs: Any) -> int | None:
    """-1 stands for all cores, None for no number."""
    if n_jobs is None:
        return None
    if n_jobs == -1:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    check_integer("n_jobs", n_jobs, 1)
    return int(n_jobs)
