"""Predictions of a trained run for a file, as csv: a line for each case, as soon as it is made."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import IO

from torch import Tensor

from ...tasks.own.columns import Columns
from .model import TrainedModel

Tell = Callable[[int], None]


def header(model: TrainedModel) -> list[str]:
    """The columns of a file of predictions."""
    return ["case", "prediction", *(f"p({name})" for name in model.classes)]


def lines(model: TrainedModel, names: list[str], outputs: Tensor) -> list[list[str]]:
    """A row for each case: its name, the answer, and the probability of every class."""
    answers = model.answers(outputs)
    if model.predicts_values:
        return [[name, f"{value:.6g}"] for name, value in zip(names, answers, strict=True)]
    sure = model.probabilities(outputs)
    return [
        [name, str(answer), *(f"{p:.6f}" for p in row)]
        for name, answer, row in zip(names, answers, sure, strict=True)
    ]


def predict_file(
    model: TrainedModel,
    new: Path,
    out: IO[str],
    *,
    columns: Columns | None = None,
    tell: Tell = lambda done: None,
) -> int:
    """Write the predictions of all cases of a file or a folder; how many there were."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header(model))
    done = 0
    for names, outputs in model.stream(new, columns):
        writer.writerows(lines(model, names, outputs))
        done += len(names)
        tell(done)
    return done
