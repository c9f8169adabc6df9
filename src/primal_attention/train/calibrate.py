"""How far the probabilities of a run may be trusted, with a temperature and as an ensemble too.

A temperature is fitted on the validation split of each run, never on what it is judged on; where
the test set has chosen the epoch (protocol "paper") there is none. Of models that bring no such
split, an estimator or one of Hugging Face, it is fitted on every second case for the others. The
seeds of a folder are an ensemble: the mean of their probabilities.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ..analysis import calibration
from ..analysis.calibration import Calibration, Difference, Figure
from ..analysis.quantiles import Quantiles, measure_chances
from ..analysis.stated import Floats, Integers, Stated
from ..attention.primal.readout import drawing, variational_layers
from ..runs.errors import RunError
from ..runs.files import explained, write_json
from ..tasks.own.columns import Columns
from .asked import Asked, batches_together
from .folders import kind_of, open_folder, place_for
from .judged import Opened, open_asked, runs_in

FILE = "calibration.json"
AS_IT_IS = "as it is"
DRAWS = 16
NUMBERS = 2**24  # logits that a temperature is fitted on

Said = dict[str, list[Floats]]  # probabilities (n, classes) by method, of every member


@dataclass(frozen=True)
class Calibrated:
    """Methods by name with their figures; `differences` are to the first, "as it is", paired.
    `strange`: the AUROC by entropy of cases that were turned around, by method, as `turned` says.
    `gaps`: of events, how well the time until the next one is known, as it is."""

    folder: Path
    split: str
    noun: str
    turned: str
    seeds: tuple[int, ...]
    temperatures: tuple[float, ...]
    methods: dict[str, Calibration]
    differences: dict[str, dict[str, Difference]]
    strange: dict[str, Figure]
    gaps: Quantiles | None = None

    def to_dict(self) -> dict[str, Any]:
        """Numbers, lists and strings only: ready for JSON."""
        return {
            "split": self.split,
            "noun": self.noun,
            "turned": self.turned,
            "seeds": list(self.seeds),
            "temperatures": list(self.temperatures),
            "methods": {name: one.to_dict() for name, one in self.methods.items()},
            "differences": {
                name: {key: vars(d) | {"sure": d.sure} for key, d in found.items()}
                for name, found in self.differences.items()
            },
            "strange": {name: vars(one) for name, one in self.strange.items()},
            "gaps": None if self.gaps is None else self.gaps.to_dict(),
        }

    def sentence(self) -> str:
        """How far the first method may be trusted, and whether another is better for sure."""
        return conclusion(self.to_dict())

    def rows(self) -> list[list[str]]:
        """A table: a line for each method; * where it differs from the first for sure."""
        names = ("accuracy", "ece", "nll", "brier", "aurc")
        found = [["", *(calibration.TITLES[name] for name in names), "strange, AUROC"]]
        for method, one in self.methods.items():
            sure = self.differences.get(method, {})
            cells = [
                f"{one[name]}{'*' if name in sure and sure[name].sure else ''}" for name in names
            ]
            found.append([method, *cells, str(self.strange.get(method, ""))])
        return found


def calibrate(
    path: Path,
    *,
    bins: int = 15,
    resamples: int = 1000,
    draws: int = DRAWS,
    most: int | None = None,
    seed: int = 0,
    out: Path | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Calibrated:
    """Judge a finished run, or the seeds of a folder together, and write calibration.json there, or
    into the folder `out`.

    `draws` of the readout where the runs have a Gaussian one. `most`: about so many events or
    tokens are judged. `tell` hears of each run.
    """
    runs = runs_in(path)
    if not runs:
        raise RunError(f"{path} has no finished seed; expected at least one")
    members = []
    for number, run in runs.items():
        tell(f"seed {number}")
        members.append(open_asked(run, most))
    return judge(path, members, tuple(runs), bins=bins, resamples=resamples, draws=draws, seed=seed)


def calibrate_folder(
    path: Path,
    *,
    data: Path | None = None,
    columns: Columns | None = None,
    most: int | None = None,
    tell: Callable[[str], None] = lambda _: None,
    **options: Any,
) -> Calibrated:
    """`calibrate` of a run, or of an estimator or a Hugging Face classifier on the cases of a
    file."""
    if kind_of(path) == "run":
        if data is not None:
            raise RunError(
                f"--data was given with the run {path}; expected a saved estimator or a Hugging "
                "Face classifier: a run has its own cases"
            )
        return calibrate(path, most=most, tell=tell, **options)
    opened = open_folder(path, data, Columns() if columns is None else columns)
    return judge(path, [opened], crossed=True, **options)


def judge(
    path: Path,
    members: Sequence[Opened],
    seeds: tuple[int, ...] = (),
    *,
    bins: int = 15,
    resamples: int = 1000,
    draws: int = DRAWS,
    seed: int = 0,
    crossed: bool = False,
    out: Path | None = None,
) -> Calibrated:
    """Judge members on the same cases, and write calibration.json. With `crossed`, every second
    case has the temperature of the others."""
    temperatures = [_temperatures(one, crossed) for one in members]
    stated: dict[str, list[list[Stated]]] = {}
    strange: dict[str, list[list[Floats]]] = {}
    groups: list[Integers | None] = []
    chances: list[list[Floats]] = [[] for _ in members]
    cases = 0
    for batches in batches_together([one.judged for one in members]):
        labels = _same_labels(path, members, batches)
        ask = _Ask(members, batches, temperatures, cases, draws, seed)
        for method, each in ask.said().items():
            _keep(stated, method, [Stated.of(p, labels) for p in each])
        for method, each in ask.said(strange=True).items():
            _keep(strange, method, [calibration.uncertainty(p) for p in each])
        groups.append(members[0].judged.groups(batches[0]))
        for kept, one, batch in zip(chances, members, batches, strict=True):
            if (u := _quiet(one.judged.chances, one.model, batch)) is not None:
                kept.append(u)
        cases += len(labels)
    together = {name: [Stated.joined(one) for one in each] for name, each in stated.items()}
    common: dict[str, Any] = {"resamples": resamples, "seed": seed}
    grouped = (
        None if groups[0] is None else np.concatenate([one for one in groups if one is not None])
    )
    first, *others = together
    asked = members[0].judged
    result = Calibrated(
        folder=path,
        split=asked.split,
        noun=asked.noun,
        turned=asked.turned,
        seeds=seeds,
        temperatures=tuple(
            float(t) for one in temperatures if one is not None for t in one[: 1 + crossed]
        ),
        methods={
            name: calibration.measure_stated(each, groups=grouped, bins=bins, **common)
            for name, each in together.items()
        },
        differences={
            name: calibration.compare_stated(
                together[first], together[name], groups=grouped, bins=bins, **common
            )
            for name in others
        },
        strange={
            name: _mean(
                [
                    calibration.told_apart(one.entropy, np.concatenate(turned), **common)
                    for one, turned in zip(each, strange[name], strict=True)
                ]
            )
            for name, each in together.items()
        },
        gaps=measure_chances([np.concatenate(one) for one in chances], groups=grouped, **common)
        if chances[0]
        else None,
    )
    place = place_for(path, out)
    with explained(f"write into {place}"):
        place.mkdir(parents=True, exist_ok=True)
        write_json(place / FILE, result.to_dict())
    return result


def conclusion(found: Mapping[str, Any]) -> str:
    """What calibration.json comes to: how far confidence is from accuracy, and which method has a
    smaller NLL for sure."""
    first, *others = found["methods"]
    one = found["methods"][first]
    bins = [b for b in one["bins"] if b["count"]]
    stated = sum(b["count"] * b["confidence"] for b in bins) / sum(b["count"] for b in bins)
    accuracy, error = (one["figures"][name] for name in ("accuracy", "ece"))
    gap = stated - accuracy["value"]
    word = "overconfident" if gap > 0 else "underconfident"
    level = accuracy["low"] <= stated <= accuracy["high"]
    said = (
        f"{100 * stated:.1f} % stated on average, {100 * accuracy['value']:.1f} % right: "
        f"{'no sure difference' if level else f'{word} by {100 * abs(gap):.1f} points'}, ECE "
        f"{error['value']:.3f}"
    )
    better = [
        name
        for name in others
        if (d := found["differences"][name]["nll"])["sure"] and d["value"] < 0
    ]
    if not others:
        return f"{said}."
    if not better:
        return f"{said}; no other method has a lower NLL for sure."
    best = min(better, key=lambda name: float(found["methods"][name]["figures"]["nll"]["value"]))
    return f"{said}; {best} has the lowest NLL of those that differ for sure."


@dataclass(frozen=True, eq=False)
class _Ask:
    """One batch of cases for all members; `first` is the number of its first case."""

    members: Sequence[Opened]
    batches: Sequence[Any]
    temperatures: Sequence[Floats | None]
    first: int
    draws: int
    seed: int

    def said(self, *, strange: bool = False) -> Said:
        """The probabilities of the cases by method, of every member; then of all together."""
        found: Said = {}
        for one, batch, two in zip(self.members, self.batches, self.temperatures, strict=True):
            plain = logits(one.judged, one.model, batch, strange=strange)
            found.setdefault(AS_IT_IS, []).append(calibration.softmax(plain))
            if two is not None:
                own = two[(self.first + np.arange(len(plain))) % 2]
                found.setdefault("temperature", []).append(
                    calibration.softmax(plain / own[:, None])
                )
            if isinstance(one.model, nn.Module) and variational_layers(one.model):
                drawn = self._drawn(one, batch, strange)
                found.setdefault("draws of the readout", []).append(drawn)
        if len(self.members) > 1:
            for name in list(found):
                joint = "ensemble of seeds" if name == AS_IT_IS else f"ensemble, {name}"
                found[joint] = [calibration.ensemble(found[name])]
        return found

    def _drawn(self, one: Opened, batch: Any, strange: bool) -> Floats:
        """The mean of draws, the same ones for every batch."""
        generator, found = torch.Generator().manual_seed(self.seed), []
        for _ in range(self.draws):
            with torch.no_grad(), drawing(one.model, generator):
                plain = logits(one.judged, one.model, batch, strange=strange)
                found.append(calibration.softmax(plain))
        return calibration.ensemble(found)


def logits(asked: Asked, model: Any, batch: Any, *, strange: bool = False) -> Floats:
    """(n, classes) of a batch in float64."""
    found: Floats = _quiet(asked.logits, model, batch, strange=strange).double().numpy()
    return found


def _quiet(ask: Callable[..., Any], *given: Any, **named: Any) -> Any:
    with torch.inference_mode():
        return ask(*given, **named)


def _temperatures(one: Opened, crossed: bool) -> Floats | None:
    """(2,): of cases with an even and with an odd number; from held-out cases, or, crossed, each
    from the other half of what is judged."""
    asked = one.judged if crossed else one.held_out
    if asked is None:
        return None
    kept, labels, numbers = [], [], 0
    for batch in asked.batches():
        kept.append(logits(asked, one.model, batch))
        labels.append(asked.labels(batch).numpy())
        numbers += kept[-1].size
        if numbers > NUMBERS:
            break
    z, y = np.concatenate(kept), np.concatenate(labels)
    if not crossed:
        return np.full(2, calibration.fit_temperature(z, y))
    if len(y) < 2:
        return None
    return np.array([calibration.fit_temperature(z[half::2], y[half::2]) for half in (1, 0)])


def _keep(kept: dict[str, list[list[Any]]], method: str, each: list[Any]) -> None:
    for parts, one in zip(kept.setdefault(method, [[] for _ in each]), each, strict=True):
        parts.append(one)


def _same_labels(path: Path, members: Sequence[Opened], batches: Sequence[Any]) -> Integers:
    """The labels, which are those of every seed where all are judged on one test set."""
    found = [
        None if batch is None else one.judged.labels(batch).numpy()
        for one, batch in zip(members, batches, strict=True)
    ]
    if found[0] is None or any(one is None or not np.array_equal(one, found[0]) for one in found):
        raise RunError(
            f"the seeds of {path} are judged on different cases; expected one test set for all: "
            "calibrate each seed alone"
        )
    return np.asarray(found[0])


def _mean(figures: list[Figure]) -> Figure:
    means = np.mean([[one.value, one.low, one.high] for one in figures], 0)
    return Figure(*map(float, means))
