"""How an ensemble is fitted: the scale of channels, the frozen bank, networks, the mixture."""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed
from torch import Tensor

from ...tasks.series import Integers, Normaliser, SeriesSet
from .ensemble import Ensemble, in_place
from .fit import Fitted, Network, Training, outputs, train
from .problem import Problem
from .progress import Bar
from .rocket.model import RocketModel, fit_model
from .rocket.ridge import Unseen
from .scaling import Squash, closed, heavy_tailed
from .settings import Settings

FEWEST = 4  # cases of a fold
TRIAL = 5  # steps that are timed
SHORTEST = 50  # steps; a network of fewer is not worth its place


@dataclass(frozen=True, eq=False)
class Built:
    """A fitted ensemble; `history` and `steps` are those of the first network, `held_out`
    are answers (N, c) to cases by what did not see them, None where there are none."""

    ensemble: Ensemble
    history: list[dict[str, Any]]
    steps: int
    held_out: Tensor | None


def build(settings: Settings, cases: SeriesSet, problem: Problem) -> Built:
    """Fit what `settings.ensemble` names."""
    ends = None if settings.minutes is None else time.monotonic() + 60 * settings.minutes
    cases = dataclasses.replace(cases, series=[closed(x) for x in cases.series])
    left_out = _left_out(settings, problem)
    squash, frozen, unseen = _frozen(settings, cases, problem, left_out)
    normaliser = None
    scaled = _drawn(cases, squash)
    if settings.normalise != "none":
        normaliser = Normaliser.fit(scaled)
        scaled = normaliser.apply(scaled)
    bare = Ensemble(settings.config, cases.channels, squash, normaliser, (), frozen, (0.0, 1.0))
    alone = Built(bare, [], 0, None if unseen is None else problem.answers(unseen.alone))
    if settings.ensemble == "fast" or (settings.ensemble == "best" and not left_out):
        return alone
    trainings = _trainings(settings, scaled, problem, left_out)
    if ends is not None:
        trainings = _within(trainings, ends - time.monotonic(), settings)
        if not trainings:
            return alone
    fitted = _train_all(trainings, settings)
    nets = tuple(f.model for f in fitted)
    whole = dataclasses.replace(bare, nets=nets[: settings.networks], factors=(1.0, 0.0))
    held_out = None
    if left_out:
        lacking = slice(settings.networks, None)
        said = _of_folds(trainings[lacking], nets[lacking], settings.device)
        whole, held_out = _mixed(whole, problem, said, unseen)
    return Built(whole, fitted[0].history, fitted[0].steps, held_out)


def folds(problem: Problem, number: int, seed: int) -> list[Integers]:
    """The cases of each fold; classes are spread evenly, values too."""
    order = problem.order(seed)
    rng = np.random.default_rng(seed)
    turns = [rng.permutation(number) for _ in range(-(-len(order) // number))]
    place = np.concatenate(turns)[: len(order)]
    return [np.sort(order[place == fold]) for fold in range(number)]


def _left_out(settings: Settings, problem: Problem) -> list[Integers]:
    """The folds; none where none are asked for, or the cases are too few."""
    cases, number = len(problem.targets), settings.folds
    if settings.ensemble == "fast" or number == 0:
        return []
    if cases >= FEWEST * number:
        return folds(problem, number, settings.config.seed)
    alone = "the frozen bank answers" if settings.ensemble == "best" else "networks answer"
    warnings.warn(
        f"X has {cases} cases, too few to hold out folds of them: {alone} alone; expected at "
        f"least {FEWEST * number} for {number} folds",
        stacklevel=5,
    )
    return []


def _of_folds(trainings: list[Training], nets: Sequence[Network], device: str) -> Tensor:
    """What each network says (N, c) of the cases that it was trained without."""
    every = np.arange(len(trainings[0].cases))
    found = torch.empty(len(every), trainings[0].problem.outputs, dtype=torch.float64)
    for training, net in zip(trainings, nets, strict=True):
        out = np.setdiff1d(every, training.rows)
        found[out] = outputs(in_place(net, device), training.data(out)).double()
    return found


def _mixed(
    whole: Ensemble, problem: Problem, nets: Tensor, frozen: Unseen | None
) -> tuple[Ensemble, Tensor]:
    """The ensemble with its temperature and factors, and its answers (N, c) to held-out cases.

    Networks and ridges are compared where both lack the same cases, those of a fold: a ridge that
    lacks a single case would have learned from half as many again.
    """
    temperature = problem.temperature(nets)
    nets = temperature * nets
    whole = dataclasses.replace(whole, temperature=temperature)
    if frozen is None or frozen.by_folds is None:
        return whole, problem.answers(nets)
    a, b = problem.factors(nets, frozen.by_folds)
    mixed = dataclasses.replace(whole, factors=(a, b))
    return mixed, problem.answers(a * nets + b * frozen.alone)


def _drawn(cases: SeriesSet, squash: Squash | None) -> SeriesSet:
    return cases if squash is None else dataclasses.replace(cases, series=squash(cases.series))


def _frozen(
    settings: Settings, cases: SeriesSet, problem: Problem, left_out: list[Integers]
) -> tuple[Squash | None, RocketModel | None, Unseen | None]:
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
        drawn, targets = _drawn(cases, squash), problem.ridge_targets()
        model, unseen = fit_model(settings.rocket, drawn, targets, problem.weigh, left_out)
        loss = float(problem.loss(problem.answers(unseen.alone)).mean())
        if chosen is None or loss < least:
            least, chosen = loss, (squash, model, unseen)
    if chosen is None:
        raise RuntimeError("there is at least one scale")
    return chosen if settings.ensemble != "net" else (chosen[0], None, None)


def _trainings(
    settings: Settings, scaled: SeriesSet, problem: Problem, left_out: list[Integers]
) -> list[Training]:
    """Those on all cases, then those without a fold."""
    every = np.arange(len(scaled))
    parts = [every] * settings.networks
    parts += [np.setdiff1d(every, fold) for fold in left_out]
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
