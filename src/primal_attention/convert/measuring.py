"""Which attentions are cheap to convert: measured on the user's inputs, on a copy of the model."""

from __future__ import annotations

import copy
import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ..adapters.converted import converted_layers, evaluation
from ..analysis.spectra import Spectrum, spectrum
from ..theory.seeds import seeded
from .apply import convert_
from .distill import distill_, without_dropout
from .lessons import taught_by_originals
from .matching import Pair, block_of
from .planning import Measured, Plan, Row, plan
from .sites import paths

STEPS = 100  # of the short distillation


def measured_plan(
    model: nn.Module,
    batches: list[Any],
    layers: Any,
    choice: tuple[str | float | None, float | None, int | None],
    options: dict[str, Any],
) -> Plan:
    """The plan of `layers` with figures; with a budget, a quality or a count, of those that are
    chosen, among all attentions unless `layers` says otherwise."""
    budget, quality, count = choice
    if sum(each is not None for each in choice) > 1:
        raise ValueError(
            f"budget, quality and count are {budget}, {quality} and {count}; expected one of them"
        )
    choosing = choice != (None, None, None)
    wide = plan(model, "all" if choosing and layers == "last" else layers, **options)
    found = measure(model, batches, wide)
    chosen = {row.name for row in wide.changes}
    if budget is not None:
        total = sum(row.flops for row in wide.rows)
        chosen = _within_budget(found, total, _factor(budget))
    if quality is not None:
        chosen = _within_quality(found, quality)
    if count is not None:
        chosen = _first(found, count)
    rows = tuple(row if row.name in chosen else _unchanged(row) for row in wide.rows)
    return dataclasses.replace(wide, rows=rows, measured=found)


def measure(model: nn.Module, batches: list[Any], wide: Plan) -> dict[str, Measured]:
    """Every attention that a plan changes: its spectrum, and its replacement after a short
    distillation, alone in the model."""
    if not batches:
        raise ValueError("batches is empty; expected at least one input of the model")
    trial = copy.deepcopy(model)
    with seeded(0):
        convert_(trial, wide)
    errors = {row.name: row.after for row in distill_(trial, batches, steps=STEPS)}
    spectra = _spectra(model, batches)
    layers = converted_layers(trial)
    found = {}
    rows = {row.name: row for row in wide.changes}
    for layer in layers:
        name = paths(trial, layer)[0]
        others = [each for each in layers if each is not layer]
        pair = Pair(model, trial, (block_of(name),))
        with (
            without_dropout(trial, layers), evaluation(model), torch.no_grad(),
            taught_by_originals(others, lambda *call: None),
        ):  # fmt: skip
            distances = [pair.distance(batch) for batch in batches]
        agreement, divergence = (
            sum(float(getattr(each, figure)) for each in distances) / len(distances)
            for figure in ("agreement", "outputs")
        )
        row = rows[name]
        rank, tail = _spectrum_of(spectra, name, row)
        saved = row.flops - row.flops_after
        found[name] = Measured(rank, tail, errors[name], agreement, divergence, saved)
    return found


def _spectra(model: nn.Module, batches: list[Any]) -> Spectrum:
    """Of the first batch; an attention whose matrix cannot be read is left out."""
    try:
        return spectrum(model, batches[0])
    except (ValueError, TypeError, NotImplementedError):
        return Spectrum(())


def _spectrum_of(found: Spectrum, name: str, row: Row) -> tuple[float, float]:
    size = (row.settings or {}).get("rank")
    for layer in found.layers:
        if layer.name == name or layer.name.startswith(f"{name}."):
            share = layer.explained_variance()
            tail = math.nan
            if size is not None:
                tail = 1.0 - float(share[..., min(size, share.shape[-1]) - 1].mean())
            return float(layer.effective_rank().mean()), tail
    return math.nan, math.nan


def _within_budget(found: Mapping[str, Measured], total: int, factor: float) -> set[str]:
    chosen: set[str] = set()
    left = total
    for name in _cheapest_first(found):
        if left <= total / factor:
            return chosen
        chosen.add(name)
        left -= found[name].saved
    if left > total / factor:
        raise ValueError(
            f"all {len(found)} attentions together save a factor of {total / left:.2f}; expected a "
            f"budget up to that, not {factor:g}x (or a greater length)"
        )
    return chosen


def _within_quality(found: Mapping[str, Measured], quality: float) -> set[str]:
    if not 0 < quality < 1:
        raise ValueError(f"quality is {quality}; expected a share between 0 and 1, such as 0.99")
    chosen: set[str] = set()
    left = 1.0
    for name in _cheapest_first(found):
        left -= 1.0 - found[name].agreement
        if left < quality:
            break
        chosen.add(name)
    if not chosen:
        best = max((each.agreement for each in found.values() if each.saved > 0), default=0.0)
        raise ValueError(
            f"no attention can be converted at quality {quality}; the cheapest leaves {best:.4f}"
        )
    return chosen


def _first(found: Mapping[str, Measured], count: int) -> set[str]:
    cheapest = _cheapest_first(found)
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= len(cheapest):
        raise ValueError(
            f"count is {count!r}; expected an integer from 1 to {len(cheapest)}, the attentions "
            "that a conversion makes cheaper at this length"
        )
    return set(cheapest[:count])


def _cheapest_first(found: Mapping[str, Measured]) -> list[str]:
    """By the divergence for each FLOP that is saved; what saves nothing is left out."""
    useful = [name for name, each in found.items() if each.saved > 0]
    return sorted(useful, key=lambda name: found[name].divergence / found[name].saved)


def _factor(budget: str | float) -> float:
    text = str(budget).strip().lower()
    if not re.fullmatch(r"\d+(\.\d+)?x?", text) or float(text.rstrip("x")) <= 1:
        raise ValueError(f'budget is {budget!r}; expected a factor above 1, such as "2x"')
    return float(text.rstrip("x"))


def _unchanged(row: Row) -> Row:
    return dataclasses.replace(
        row, settings=None, parameters_after=row.parameters, flops_after=row.flops, note=""
    )
