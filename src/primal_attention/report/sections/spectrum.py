"""Singular values of the attention matrices: decay, explained variance, effective ranks."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..charts import Series, heat, lines
from ..run_spectra import INPUTS, read_spectrum
from .base import Section, figure, notes, panel
from .read import Entry, Sources

SMALLEST = 1e-6  # of the largest singular value; the rest is rounding


@dataclass(frozen=True)
class Spectra:
    """What was found for each entry, {key: document}, and why for others not."""

    found: Mapping[int, dict[str, Any]]
    reasons: tuple[str, ...] = ()


def find_spectra(sources: Sources, inputs: int = INPUTS) -> Spectra:
    """The spectrum of the first seed of every entry, as far as weights and data are available."""
    found, reasons = {}, []
    for entry in sources.detailed:
        try:
            found[entry.key] = read_spectrum(entry.runs[0].path, inputs)
        except Exception as error:  # a page without this part is better than no page
            reason = " ".join(str(error).split()) or type(error).__name__
            reasons.append(f"No spectrum of {entry.name}: {reason}.")
    return Spectra(found, tuple(reasons))


def spectrum(sources: Sources, spectra: Spectra) -> Section | None:
    parts = [
        _of_entry(entry, spectra.found[entry.key]["spectrum"], sources)
        for entry in sources.detailed
        if entry.key in spectra.found
    ]
    if not parts and not spectra.reasons:
        return None
    body = _together(sources, spectra) + "".join(parts) + notes(spectra.reasons)
    return Section("spectrum", "Spectrum of the attention matrices", body)


def _together(sources: Sources, spectra: Spectra) -> str:
    """The explained variance of all models on one axis, each the mean over its layers."""
    series, commands, longest = [], [], 1
    curves: list[tuple[Entry, list[Any]]] = []
    for entry in sources.detailed:
        layers = spectra.found.get(entry.key, {}).get("spectrum", {}).get("layers", [])
        if layers:
            curves.append((entry, [one["explained_variance"]["mean"] for one in layers]))
            longest = max(longest, *(len(one) for one in curves[-1][1]))
            commands.append(spectrum_command(entry))
    if len(curves) < 2:
        return ""
    for entry, layers in curves:
        mean = np.mean([_extend(one, longest) for one in layers], axis=0)
        series.append(Series(entry.name, entry.key, [float(v) for v in mean]))
    chart = lines(
        list(range(1, longest + 1)), series, x_name="number of singular values",
        y_name="explained variance", log_x=True, log_y=False, limits=(0.0, 1.03),
    )  # fmt: skip
    made = figure(
        "explained by model", "Explained variance of the models", chart,
        [*commands, sources.command], "Mean over layers, heads and inputs; the first seed of each.",
    )  # fmt: skip
    return panel([made], [(entry.key, entry.name) for entry, _ in curves])


def spectrum_command(entry: Entry) -> str:
    return shlex.join(["primal", "spectrum", str(entry.runs[0].path)])


def _of_entry(entry: Entry, document: dict[str, Any], sources: Sources) -> str:
    layers = document["layers"]
    if not layers:
        return ""
    commands = [*entry.commands, spectrum_command(entry), sources.command]
    names = [f"{one['name']}: {one['kind']}" for one in layers]
    longest = max(len(one["explained_variance"]["mean"]) for one in layers)
    k = list(range(1, longest + 1))
    decay: list[list[float | None]] = []
    shares: list[Series] = []
    for i, one in enumerate(layers):
        values = np.mean(one["singular_values_by_head"], axis=0)  # (k,)
        relative = values / max(values[0], 1e-300)
        decay.append([float(v) for v in relative if v > SMALLEST])
        mean = np.array(one["explained_variance"]["mean"])
        deviation = np.array(one["explained_variance"]["deviation"])
        band = (
            _extend(np.clip(mean - deviation, 0, 1), longest),
            _extend(np.clip(mean + deviation, 0, 1), longest),
        )
        shares.append(Series(names[i], i, _extend(mean, longest), band))
    least = min(min(one.band[0]) for one in shares if one.band)
    lowest = max(0.0, math.floor(10 * least - 0.5) / 10)
    lasting = max(1, *map(len, decay))
    falling = [Series(names[i], i, padded(one, lasting)) for i, one in enumerate(decay)]
    inputs = layers[0]["inputs"]
    first = f"seed {entry.runs[0].seed}, {inputs} inputs"
    figures = [
        figure(
            f"decay {entry.key} {entry.name}", "Singular-value decay",
            lines(k[:lasting], falling, x_name="k", y_name="σ(k) / σ(1)", log_x=True), commands,
            f"Mean over heads and inputs; {first}.",
        ),
        figure(
            f"explained {entry.key} {entry.name}", "Cumulative explained variance",
            lines(k, shares, x_name="number of singular values", y_name="explained variance",
                  log_x=True, log_y=False, limits=(lowest, 1.03)), commands,
            "Mean and deviation over heads and inputs.",
        ),
        _ranks(entry, layers, commands),
    ]  # fmt: skip
    skipped = [f"{name} is not shown: {why}." for name, why in document["skipped"].items()]
    return panel(figures, list(enumerate(names)), entry.name) + notes(skipped)


def _ranks(entry: Entry, layers: list[dict[str, Any]], commands: list[str]) -> str:
    """Effective ranks, layers down and heads across."""
    heads = max(len(one["effective_rank_by_head"]) for one in layers)
    ranks = [padded(one["effective_rank_by_head"], heads) for one in layers]
    top = max((rank for row in ranks for rank in row if rank is not None), default=1.0)
    # the full name is in the tip
    short = short_names([one["name"] for one in layers])
    kinds = [str(one["kind"]).split()[0] for one in layers]
    names = [f"{name}: {kind}" for name, kind in zip(short, kinds, strict=True)]
    chart = heat(
        ranks, names, [str(h) for h in range(heads)],
        row_name="layer", column_name="head", value_name="effective rank",
        shades=[[(rank or 0.0) / max(top, 1e-12) for rank in row] for row in ranks],
        texts=[["" if rank is None else f"{rank:.1f}" for rank in row] for row in ranks],
        tips=[
            ["" if rank is None else f"{one['name']}\n{one['kind']}, head {h}: {rank:.2f}"
             for h, rank in enumerate(row)]
            for one, row in zip(layers, ranks, strict=True)
        ],
        cell=34.0,
    )  # fmt: skip
    return figure(
        f"ranks {entry.key} {entry.name}", "Effective rank by layer and head", chart, commands,
        "exp of the entropy of the normalised singular values, mean over inputs.",
    )  # fmt: skip


def short_names(names: Sequence[str]) -> list[str]:
    """The numbers in the names of layers, "1" of "encoder.layers.1.attention", where these tell
    them apart; else the names."""
    numbers = [".".join(part for part in name.split(".") if part.isdigit()) for name in names]
    return numbers if len(set(numbers)) == len(names) and all(numbers) else list(names)


def padded(values: Sequence[float | None], length: int) -> list[float | None]:
    """The values, then None up to a length."""
    return [*values, *[None] * (length - len(values))]


def _extend(values: Any, length: int) -> list[float]:
    """A curve that stays at its last value."""
    return [float(values[min(i, len(values) - 1)]) for i in range(length)]
