"""How far the probabilities of a run may be trusted, with a temperature and as an ensemble too.

A temperature is fitted on the validation split of each run, never on what it is judged on; where
the test set has chosen the epoch (protocol "paper") there is none. The seeds of a folder are an
ensemble: the mean of their probabilities.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..analysis import calibration
from ..analysis.calibration import Calibration, Difference, Figure
from ..attention.primal.readout import drawing, variational_layers
from ..runs.errors import RunError
from ..runs.files import explained, write_json
from ..tasks.classification.evaluate import TOKENS, similar_lengths
from ..tasks.examples import Batch, Examples
from .judged import open_classes, runs_in

FILE = "calibration.json"
AS_IT_IS = "as it is"
DRAWS = 16

Logits = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Calibrated:
    """Methods by name with their figures; `differences` are to the first, "as it is", paired.
    `strange`: the AUROC by entropy of cases that were turned around, by method."""

    folder: Path
    split: str
    seeds: tuple[int, ...]
    temperatures: tuple[float, ...]
    methods: dict[str, Calibration]
    differences: dict[str, dict[str, Difference]]
    strange: dict[str, Figure]

    def to_dict(self) -> dict[str, Any]:
        """Numbers, lists and strings only: ready for JSON."""
        return {
            "split": self.split,
            "seeds": list(self.seeds),
            "temperatures": list(self.temperatures),
            "methods": {name: one.to_dict() for name, one in self.methods.items()},
            "differences": {
                name: {key: vars(d) | {"sure": d.sure} for key, d in found.items()}
                for name, found in self.differences.items()
            },
            "strange": {name: vars(one) for name, one in self.strange.items()},
        }

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
    seed: int = 0,
    tell: Callable[[str], None] = lambda _: None,
) -> Calibrated:
    """Judge a finished run, or the seeds of a folder together, and write calibration.json there.

    `draws` of the readout where the runs have a Gaussian one. `tell` hears of each run.
    """
    runs = runs_in(path)
    if not runs:
        raise RunError(f"{path} has no finished seed; expected at least one")
    found: dict[str, list[Logits]] = {}
    turned: dict[str, list[Logits]] = {}
    temperatures, split = [], ""
    labels: Any = None
    for number, run in runs.items():
        tell(f"seed {number}")
        data, model = open_classes(run)
        test = data.test()
        examples, split = (data.selection, data.split) if test is None else (test, "test")
        labels = _same(labels, examples.targets.numpy(), run)
        temperature = None
        if examples is not data.selection:
            held_out = logits(model, data.selection)
            temperature = calibration.fit_temperature(held_out, data.selection.targets.numpy())
            temperatures.append(temperature)
        for change, kept in ((None, found), (turn_around, turned)):
            plain = logits(model, examples, change)
            _add(kept, AS_IT_IS, calibration.softmax(plain))
            if temperature is not None:
                _add(kept, "temperature", calibration.tempered(plain, temperature))
            if variational_layers(model):
                _add(kept, "draws of the readout", _drawn(model, examples, change, draws, seed))
    for kept in (found, turned):
        if len(runs) > 1:
            for name in list(kept):
                joint = "ensemble of seeds" if name == AS_IT_IS else f"ensemble, {name}"
                kept[joint] = [calibration.ensemble(kept[name])]
    judged = {
        name: calibration.measure(np.stack(p), labels, bins=bins, resamples=resamples, seed=seed)
        for name, p in found.items()
    }
    first, *others = found
    differences = {
        name: calibration.compare(
            np.stack(found[first]), np.stack(found[name]), labels,
            bins=bins, resamples=resamples, seed=seed,
        )
        for name in others
    }  # fmt: skip
    strange = {
        name: _mean(
            [
                calibration.out_of_distribution(a, b, resamples=resamples, seed=seed)
                for a, b in zip(found[name], turned[name], strict=True)
            ]
        )
        for name in found
    }
    result = Calibrated(path, split, tuple(runs), tuple(temperatures), judged, differences, strange)
    with explained(f"write into {path}"):
        write_json(path / FILE, result.to_dict())
    return result


@torch.inference_mode()
def logits(
    model: nn.Module, examples: Examples, change: Callable[[Batch], Tensor] | None = None
) -> Logits:
    """(cases, classes) in float64; `change` makes other inputs of a batch."""
    found = np.empty((len(examples), len(examples.classes)))
    for indices in similar_lengths(examples.lengths.numpy(), TOKENS):
        batch = examples.__getitems__(indices)
        inputs = batch.inputs if change is None else change(batch)
        found[indices] = model(inputs, batch.padding).double().numpy()
    return found


def turn_around(batch: Batch) -> Tensor:
    """Strange cases: the valid positions of a sequence in reversed order, images upside down."""
    inputs, padding = batch.inputs, batch.padding
    if padding.shape != inputs.shape[: padding.dim()]:  # images (B, C, H, W)
        return inputs.flip(-2)
    axis = padding.dim() - 1
    length = padding.shape[axis]
    valid = (~padding).sum(-1, keepdim=True)  # the padding stands behind
    places = torch.arange(length).expand(padding.shape)
    order = torch.where(places < valid, valid - 1 - places, places)
    index = order[..., None].expand_as(inputs) if inputs.dim() > padding.dim() else order
    return inputs.gather(axis, index)


def _drawn(
    model: nn.Module,
    examples: Examples,
    change: Callable[[Batch], Tensor] | None,
    draws: int,
    seed: int,
) -> Logits:
    generator, found = torch.Generator().manual_seed(seed), []
    for _ in range(draws):
        with torch.no_grad(), drawing(model, generator):
            found.append(calibration.softmax(logits(model, examples, change)))
    return calibration.ensemble(found)


def _add(kept: dict[str, list[Logits]], name: str, probabilities: Logits) -> None:
    kept.setdefault(name, []).append(probabilities)


def _same(before: Any, labels: Any, run: Path) -> Any:
    """The labels, which are those of every seed where all are judged on one test set."""
    if before is not None and not np.array_equal(before, labels):
        raise RunError(
            f"{run} is judged on other cases than the seeds before it; expected one test set for "
            "all: calibrate each seed alone"
        )
    return labels


def _mean(figures: list[Figure]) -> Figure:
    means = np.mean([[one.value, one.low, one.high] for one in figures], 0)
    return Figure(*map(float, means))
