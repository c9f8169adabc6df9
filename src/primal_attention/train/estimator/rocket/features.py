"""Series to feature matrices, a chunk of cases at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool1d

from ....tasks.series import Floats, Integers, Normaliser, SeriesSet
from .bank import KERNELS, Bank, Workspace, difference, draw_bank, levels, responses
from .pooling import PARTS, Times, pool
from .prepare import fit_normaliser, prepare_case

CHUNK = 160_000  # responses at once, so that they stay in the cache
SAMPLE = 2048  # positions that the thresholds of a layer are taken from, about
POINTS = 128  # of a series in the raw part
RAW = 2**14  # features in the raw part at most, if there are fewer channels


@dataclass(frozen=True, eq=False)
class Extractor:
    """From series to features: statistics of the channels, the bank, and what to pool."""

    normaliser: Normaliser
    bank: Bank
    parts: tuple[str, ...]
    points: int  # of a series in the raw part
    max_positions: int

    @classmethod
    def fit(
        cls, cases: SeriesSet, *, parts: tuple[str, ...], groups: int, max_positions: int, seed: int
    ) -> Extractor:
        """Kernels by the seed; statistics and thresholds by the cases."""
        normaliser, longest = fit_normaliser(cases), int(cases.lengths.max())
        bank = draw_bank(seed, cases.channels, longest, groups)
        bank = _fit_biases(bank, cases.series, normaliser, max_positions, seed)
        points = max(min(POINTS, longest, RAW // cases.channels), 1)
        return cls(normaliser, bank, parts, points, max_positions)

    def widths(self) -> dict[str, int]:
        """How many features each part has."""
        kernels = len(self.bank.layers) * self.bank.groups * KERNELS
        known = {part: kernels * width for part, width in PARTS.items()}
        known["raw"] = self.bank.channels * self.points
        return {part: known[part] for part in self.parts}

    def features(self, series: Sequence[Floats]) -> dict[str, Tensor]:
        """Each part (cases, width) in float32."""
        found = {
            part: torch.empty(len(series), width, dtype=torch.float32)
            for part, width in self.widths().items()
        }
        lengths = np.array([len(x) for x in series], dtype=np.int64)
        work = Workspace()
        for indices, stride in _chunks(lengths, self.bank.groups, self.max_positions):
            prepared = [prepare_case(series[i], self.normaliser) for i in indices]
            if "raw" in self.parts:
                for i, x in zip(indices, prepared, strict=True):
                    found["raw"][i] = adaptive_avg_pool1d(x, self.points).flatten()
            if self.parts != ("raw",):
                self._pool(prepared, torch.from_numpy(indices), stride, found, work)
        return found

    def _pool(
        self,
        prepared: list[Tensor],
        rows: Tensor,
        stride: int,
        found: dict[str, Tensor],
        work: Workspace,
    ) -> None:
        """All layers' parts of a chunk of cases, written to their rows."""
        times = Times(torch.tensor([x.shape[1] for x in prepared]), stride)
        forms = _join(prepared)
        for i, layer in enumerate(self.bank.layers):
            for groups in _group_slices(layer.groups, times.mean.shape[1]):
                some = layer.part(groups)
                z = responses(some, forms[layer.difference], stride, work)
                for part, values in pool(z, some, times, self.parts, work):
                    start = (i * layer.groups + groups.start) * KERNELS * PARTS[part]
                    found[part][rows, start : start + values.shape[1]] = values


def _fit_biases(
    bank: Bank, series: Sequence[Floats], normaliser: Normaliser, max_positions: int, seed: int
) -> Bank:
    """The thresholds of each kernel: quantiles of its responses on a few of the cases."""
    longest = max(map(len, series))
    cases = min(max(SAMPLE // longest, 4), 32, len(series))
    chosen = np.random.default_rng(seed).choice(len(series), cases, replace=False)
    found: list[list[Tensor]] = [[] for _ in bank.layers]
    work = Workspace()
    for i in chosen:
        forms = _join([prepare_case(series[i], normaliser)])
        stride = -(-len(series[i]) // min(max_positions, SAMPLE))
        for layer, responded in zip(bank.layers, found, strict=True):
            z = responses(layer, forms[layer.difference], stride, work)
            responded.append(z[0].clone())  # (G, K, n)
    at = levels(len(bank.layers), bank.groups)
    biases = [_quantiles(torch.cat(z, 2), q) for z, q in zip(found, at, strict=True)]
    return bank.with_biases(torch.stack(biases))


def _quantiles(z: Tensor, at: Tensor) -> Tensor:
    """The quantiles `at` (G, K, BIASES) of z (G, K, n) along its last dimension."""
    ordered = torch.from_numpy(np.sort(z.numpy(), 2))  # several times as fast as torch's
    place = at * (z.shape[2] - 1)
    low, high = ordered.gather(2, place.floor().long()), ordered.gather(2, place.ceil().long())
    return torch.lerp(low, high, place.frac().float())


def _chunks(lengths: Integers, groups: int, max_positions: int) -> Iterator[tuple[Integers, int]]:
    """Cases of similar length that are computed together, and the stride of their positions."""
    order = np.argsort(lengths, kind="stable")
    strides = -(-lengths // max_positions)
    responses_of = -(-lengths // strides) * groups * KERNELS
    start = 0
    for stop in range(1, len(order) + 1):
        if stop < len(order):
            i = order[stop]
            fits = (stop + 1 - start) * responses_of[i] <= CHUNK
            if fits and strides[i] == strides[order[start]]:
                continue
        yield order[start:stop], int(strides[order[start]])
        start = stop


def _group_slices(groups: int, positions: int) -> Iterator[slice]:
    """So many groups at once that the responses of one case stay in the cache."""
    step = min(max(CHUNK // (KERNELS * positions), 1), groups)
    for start in range(0, groups, step):
        yield slice(start, min(start + step, groups))


def _join(prepared: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Cases (C, T_i) together and their differences, each (B, C, T), 0 behind the end."""
    if len(prepared) == 1:
        x = prepared[0][None]
        return x, difference(x)
    longest = max(x.shape[1] for x in prepared)
    joined = prepared[0].new_zeros(2, len(prepared), prepared[0].shape[0], longest)
    for i, x in enumerate(prepared):
        joined[0, i, :, : x.shape[1]] = x
        joined[1, i, :, : x.shape[1]] = difference(x)
    return joined[0], joined[1]
