"""Series as the bank takes them: missing values filled, channels scaled, float32."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ....tasks.series import Floats, Normaliser, SeriesSet

STATISTICS = 2**22  # values that means and deviations are taken from at most
BLOCK = 2**22  # values that are scaled at once
FARTHEST = 1e3  # deviations from the mean; what lies beyond is cut to it


def fit_normaliser(cases: SeriesSet) -> Normaliser:
    """Mean and deviation of each channel; of very large sets every k-th position counts."""
    total = int(cases.lengths.sum()) * cases.channels
    step = -(-total // STATISTICS)
    thin = [x[::step] for x in cases.series]
    return Normaliser.fit(SeriesSet(cases.name, thin, cases.labels, cases.classes))


def prepare_case(x: Floats, normaliser: Normaliser) -> Tensor:
    """(length, channels) in float64 to (channels, length) in float32, a few channels at a time."""
    length, channels = x.shape
    prepared = np.empty((channels, length), dtype=np.float32)
    block = max(BLOCK // length, 1)
    for start in range(0, channels, block):
        part = slice(start, start + block)
        values = x.T[part] - normaliser.mean[part, np.newaxis]
        values /= normaliser.deviation[part, np.newaxis]
        for channel in np.flatnonzero(np.isnan(values).any(1)):
            fill_missing(values[channel])
        prepared[part] = values.clip(-FARTHEST, FARTHEST)
    return torch.from_numpy(prepared)


def fill_missing(values: Floats) -> None:
    """In place: a missing value lies on the line between its neighbours, before the first and
    behind the last it is the same as they; a channel without any is 0, its mean."""
    missing = np.isnan(values)
    if missing.all():
        values[:] = 0.0
        return
    known = np.flatnonzero(~missing)
    values[missing] = np.interp(np.flatnonzero(missing), known, values[known])
