"""Which attentions are cheap to convert: measured on the user's inputs, on a copy of the model."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from ..adapters.converted import converted_layers, evaluation
from ..analysis.spectra import Spectrum, spectrum
from ..theory.seeds import seeded
from .apply import convert_
from .choosing import Choice
from .distill import distill_, without_dropout
from .inputs import expect_inputs
from .lessons import taught_by_originals
from .matching import Pair, block_of
from .planning import Measured, Plan, Row, Together, plan
from .seconds import Seconds, seconds_of
from .sites import find_sites, paths

STEPS = 100  # of the short distillation


Tell = Callable[[int, int, str], None]


def measured_plan(
    model: nn.Module,
    batches: list[Any],
    layers: Any,
    choice: Choice,
    options: dict[str, Any],
    tell: Tell | None = None,
) -> Plan:
    """The plan of `layers` with figures; with a budget, a quality or a count, of those that are
    chosen, among all attentions unless `layers` says otherwise."""
    if not batches:
        raise ValueError("batches is empty; expected at least one input of the model")
    expect_inputs(model, batches)
    if options.get("example") is None:
        options = {**options, "example": batches[0]}
    wide = plan(model, "all" if choice and layers == "last" else layers, **options)
    total = sum(row.flops for row in wide.rows)
    if choice:
        choice.expect_possible([row.flops - row.flops_after for row in wide.changes], total)
    trial = Trial(model, batches, wide, tell)
    found = trial.measure(_spectra(model, batches))
    if choice:
        chosen = choice(found, total, trial)
    else:
        names = [row.name for row in wide.changes]
        chosen = {name: trial(names[:turn]) for turn, name in enumerate(names, 1)}
    rows = tuple(row if row.name in chosen else _unchanged(row) for row in wide.rows)
    return dataclasses.replace(wide, rows=rows, measured=found, together=chosen)


class Trial:
    """A copy of a model with all attentions of a plan converted and shortly distilled. Called with
    names, only these are: the others give their originals' outputs. tell hears of every attention
    twice, and then of every trial of several."""

    def __init__(
        self, model: nn.Module, batches: list[Any], wide: Plan, tell: Tell | None = None
    ) -> None:
        self.model, self.batches, self.wide = model, batches, wide
        self.parts, self.tell = 2 * len(wide.changes), tell or (lambda done, parts, text: None)
        self.copy = copy.deepcopy(model)
        with seeded(0):
            convert_(self.copy, wide)
        self.tell(0, self.parts, "attentions by themselves")
        told = lambda done, _, text: self.tell(done, self.parts, text)  # noqa: E731
        rows = distill_(self.copy, batches, steps=STEPS, tell=told)
        self.errors = {row.name: row.after for row in rows}
        self.layers = {paths(self.copy, one)[0]: one for one in converted_layers(self.copy)}

    def __call__(self, names: Sequence[str]) -> Together:
        layers = list(self.layers.values())
        others = [layer for name, layer in self.layers.items() if name not in names]
        pair = Pair(self.model, self.copy, (block_of(names[0]),))
        with (
            without_dropout(self.copy, layers), evaluation(self.model), torch.no_grad(),
            taught_by_originals(others, lambda *call: None),
        ):  # fmt: skip
            distances = [pair.distance(batch) for batch in self.batches]
        agreements = torch.stack([each.agreement for each in distances])
        divergences = torch.stack([each.outputs for each in distances])
        reached = Together(float(agreements.mean()), float(divergences.mean()))
        if len(names) > 1:
            text = f"{len(names)} together, with {names[-1]}: agreement {reached.agreement:.4f}"
            self.tell(self.parts, self.parts, text)
        return reached

    def measure(self, spectra: Spectrum) -> dict[str, Measured]:
        """Every attention: its spectrum, and its replacement, alone in the model."""
        rows = {row.name: row for row in self.wide.changes}
        seconds = self._seconds(rows)
        found = {}
        for number, name in enumerate(self.layers, 1):
            alone, row = self([name]), rows[name]
            found[name] = Measured(
                *_spectrum_of(spectra, name, row), self.errors[name], *alone,
                row.flops - row.flops_after, seconds[name],
            )  # fmt: skip
            text = f"{name} alone: agreement {alone.agreement:.4f}"
            self.tell(len(self.layers) + number, self.parts, text)
        return found

    def _seconds(self, rows: Mapping[str, Row]) -> dict[str, Seconds]:
        """Of every attention and its replacement at the plan's length; one of each shape is run."""
        sources = {site.name: site.read() for site in find_sites(self.model, cross=self.wide.cross)}
        known: dict[str, Seconds] = {}
        found = {}
        with without_dropout(self.copy, list(self.layers.values())):
            for name, layer in self.layers.items():
                source, row = sources[name], rows[name]
                shape = (type(source), source.num_heads, source.groups, source.head_dim)
                key = f"{shape} {source.embed_dim} {row.settings}"
                if key not in known:
                    known[key] = seconds_of(source, layer.primal, self.wide.length, row.flops)
                found[name] = known[key]
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


def _unchanged(row: Row) -> Row:
    return dataclasses.replace(
        row, settings=None, parameters_after=row.parameters, flops_after=row.flops, note=""
    )
