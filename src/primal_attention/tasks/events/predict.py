"""What a trained model expects after the last event of every sequence of a table."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import torch

from ...models.events import EventModel
from ..base import DataError
from ..classification.evaluate import similar_lengths
from .evaluate import INTERVAL, TOKENS
from .files import read_rows


@torch.inference_mode()
def predict_table(model: EventModel, names: Sequence[str], new: Path, out: IO[str]) -> int:
    """Write a line for each sequence of a table (sequence, time, type): the likeliest next type,
    quantiles of the time at which it comes, and the chance of every type. How many there were."""
    if model.known_time:
        raise DataError(
            "the run was trained with --known-time: it answers for a given time of the next event; "
            "expected a run without it"
        )
    data, sequences = read_rows(new, names, shortest=1)
    writer = csv.writer(out, lineterminator="\n")
    moments = [f"time at {100 * share:g} %" for share in INTERVAL]
    writer.writerow(["sequence", "last time", "next type", *moments, *(f"p({n})" for n in names)])
    rows: dict[int, list[str]] = {}
    lengths = torch.tensor([len(times) for times in data.times]).numpy()
    for indices in similar_lengths(lengths, TOKENS):
        longest = int(lengths[indices].max())
        types = torch.zeros(len(indices), longest, dtype=torch.long)
        times = torch.zeros(len(indices), longest, dtype=torch.float64)
        padding = torch.arange(longest) >= torch.from_numpy(lengths[indices]).unsqueeze(-1)
        for row, i in enumerate(indices):
            types[row, : lengths[i]] = torch.from_numpy(data.types[i])
            times[row, : lengths[i]] = torch.from_numpy(data.times[i])
        made = model(types, times, None, padding)
        if made.gap is None:
            raise RuntimeError("a model that does not know the time predicts it")
        waits = torch.stack([made.gap.quantile(share) for share in INTERVAL], -1)
        for row, i in enumerate(indices):
            at = int(lengths[i]) - 1
            chances, last = made.types[row, at].softmax(-1), float(data.times[i][-1])
            rows[i] = [
                sequences[i], repr(last), names[int(chances.argmax())],
                *(repr(last + float(wait)) for wait in waits[row, at]),
                *(f"{chance:.6f}" for chance in chances.tolist()),
            ]  # fmt: skip
    writer.writerows(rows[i] for i in range(len(data)))
    return len(data)
