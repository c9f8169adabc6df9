"""How an ensemble is fitted: the scale of channels, the frozen bank, networks, the mixture."""

from __future__ import annotations

import dataclasses
import time
import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed
from torch import Tensor

from ...tasks.series import Integers, Normaliser, SeriesSet
from .ensemble import FOLDS, Ensemble, in_place
from .fit import Fitted, Training, outputs, train
from .problem import Problem
from .progress import Bar
from .rocket.model import RocketModel, fit_model
from .scaling import Squash, closed, heavy_tailed
from .settings import Settings

FEWEST = 4 * FOLDS  # cases of which folds are held out
TRIAL = 5  # steps that are timed
SHORTEST = 50  # steps; a network of fewer is not worth its place


@dataclass(frozen=True, eq=False)
class Built:
    """A fitted ensemble; `history` and `steps` are those of the network on all cases, `held_out`
    are answers (N, c) to cases by what did not see them, None where there are none."""

    ensemble: Ensemble
    history: list[dict[str, Any]]
    steps: int
    held_out: Tensor | None


def build(settings: Settings, cases: SeriesSet, problem: Problem) -> Built:
    """Fit what `settings.ensemble` names."""
    ends = None if settings.minutes is None else time.monotonic() + 60 * settings.minutes
    cases = dataclasses.replace(cases, series=[closed(x) for x in cases.series])
    squash, frozen, scores = _frozen(settings, cases, problem)
    normaliser = None
    scaled = _drawn(cases, squash)
    if settings.normalise != "none":
        normaliser = Normaliser.fit(scaled)
        scaled = normaliser.apply(scaled)
    bare = Ensemble(settings.config, cases.channels, squash, normaliser, (), frozen, share=0.0)
    alone = Built(bare, [], 0, None if scores is None else problem.answers(scores))
    if settings.ensemble == "fast" or (settings.ensemble == "best" and _too_few(len(cases))):
        return alone
    trainings = _trainings(settings, scaled, problem)
    if ends is not None:
        trainings = _within(trainings, ends - time.monotonic(), settings)
        if not trainings:
            return alone
    fitted = _train_all(trainings, settings)
    first = fitted[0]
    nets = tuple(f.model for f in fitted)
    whole = dataclasses.replace(bare, nets=nets, share=1.0)
    if scores is None or len(nets) == 1:
        return Built(dataclasses.replace(whole, frozen=None), first.history, first.steps, None)
    left = torch.empty(len(cases), problem.outputs, dtype=torch.float64)
    for training, net in zip(trainings[1:], nets[1:], strict=True):
        out = np.setdiff1d(np.arange(len(cases)), training.rows)
        left[out] = outputs(in_place(net, settings.device), training.data(out)).double()
    temperature = problem.temperature(left)
    said, frozen_said = problem.answers(temperature * left), problem.answers(scores)
    share = problem.share(said, frozen_said)
    mixed = dataclasses.replace(whole, temperature=temperature, share=share)
    return Built(mixed, first.history, first.steps, share * said + (1 - share) * frozen_said)


def folds(problem: Problem, seed: int) -> list[Integers]:
    """The cases of each fold; classes are spread evenly, values too."""
    order = problem.order(seed)
    rng = np.random.default_rng(seed)
    turns = [rng.permutation(FOLDS) for _ in range(-(-len(order) // FOLDS))]
    place = np.concatenate(turns)[: len(order)]
    return [np.sort(order[place == fold]) for fold in range(FOLDS)]


def _too_few(cases: int) -> bool:
    if cases < FEWEST:
        warnings.warn(
            f"X has {cases} cases, too few to hold out folds of them: the frozen bank answers "
            f"alone; expected at least {FEWEST} for ensemble='best'",
            stacklevel=4,
        )
    return cases < FEWEST


def _drawn(cases: SeriesSet, squash: Squash | None) -> SeriesSet:
    return cases if squash is None else dataclasses.replace(cases, series=squash(cases.series))


def _frozen(
    settings: Settings, cases: SeriesSet, problem: Problem
) -> tuple[Squash | None, RocketModel | None, Tensor | None]:
    """The scale with the least loss on left-out cases, and unless networks are to stand alone the
    frozen bank with its left-out scores."""
    options: list[Squash | None] = [None]
    if settings.normalise == "asinh":
        options = [Squash.fit(cases)]
    elif settings.normalise == "auto" and heavy_tailed(cases):
        options.append(Squash.fit(cases))
    if settings.ensemble == "net" and len(options) == 1:
        return options[0], None, None
    least, chosen = torch.inf, None
    for squash in options:
        model, scores = fit_model(
            settings.rocket, _drawn(cases, squash), problem.ridge_targets(), problem.weigh
        )
        loss = float(problem.loss(problem.answers(scores)).mean())
        if chosen is None or loss < least:
            least, chosen = loss, (squash, model, scores)
    if chosen is None:
        raise RuntimeError("there is at least one scale")
    return chosen if settings.ensemble != "net" else (chosen[0], None, None)


def _trainings(settings: Settings, scaled: SeriesSet, problem: Problem) -> list[Training]:
    """That on all cases, then for "best" those without a fold."""
    every = np.arange(len(scaled))
    left_out = folds(problem, settings.config.seed) if settings.ensemble == "best" else []
    parts = [every, *(np.setdiff1d(every, fold) for fold in left_out)]
    seeds = np.random.SeedSequence(settings.config.seed).generate_state(len(parts)).tolist()
    return [
        Training(
            dataclasses.replace(settings.config, seed=seed),
            scaled,
            problem,
            rows,
            settings.steps,
            settings.patience,
        )
        for rows, seed in zip(parts, seeds, strict=True)
    ]


def _within(trainings: list[Training], seconds: float, settings: Settings) -> list[Training]:
    """With so many steps that all end in time; none if that is too few for "best"."""
    start = time.monotonic()
    train(trainings[0].with_steps(TRIAL))
    step = (time.monotonic() - start) / TRIAL
    rounds = -(-len(trainings) // settings.workers)
    steps = max(int((seconds - step * TRIAL) / (rounds * step)), 1)
    if steps >= max(t.steps_for(len(t.rows)) for t in trainings):
        return trainings
    if steps < SHORTEST and settings.ensemble == "best":
        warnings.warn(
            f"max_minutes leaves {steps} steps for each network, too few: the frozen bank answers "
            f"alone; expected time for at least {SHORTEST}",
            stacklevel=4,
        )
        return []
    return [t.with_steps(steps) for t in trainings]


def _train_all(trainings: list[Training], settings: Settings) -> list[Fitted]:
    """One after another, or each in a process of its own: the result is the same."""
    workers = min(settings.workers, len(trainings))
    bar = Bar(len(trainings), settings.verbose)
    fitted: list[Fitted] = []
    if workers == 1 or settings.config.accelerator != "cpu":
        for training in trainings:
            fitted.append(train(training, partial(bar.show, len(fitted))))
    else:
        jobs = (delayed(train)(training) for training in trainings)
        for done in Parallel(workers, return_as="generator")(jobs):
            bar.show(len(fitted), 1, 1)
            fitted.append(done)
    bar.close()
    return fitted
