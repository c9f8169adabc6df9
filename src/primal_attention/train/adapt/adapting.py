"""Conversion and recovery: layer by layer against the originals, then the whole model against it.

The teacher is the model as it was before: labels are not needed.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from ...adapters.converted import evaluation
from ...convert import Plan, convert_, converted_layers, plan
from ...convert.inputs import expect_inputs, listed
from ...convert.matching import Pair, block_of, own_loss
from ...convert.pretrained import opened
from ...convert.sites import check_model, paths
from ...theory.seeds import seeded
from .choosing import measured_choice
from .loop import Run, Tell
from .settings import Adaptation, AdaptSettings, Evaluation


def adapt_(
    model: nn.Module | Path | str,
    batches: Iterable[Any],
    *,
    layers: Any = "last",
    count: int | None = None,
    budget: str | float | None = None,
    length: int = 512,
    held_out: Iterable[Any] | None = None,
    teacher: nn.Module | Path | str | None = None,
    quality: Callable[[nn.Module], float] | None = None,
    settings: AdaptSettings | None = None,
    folder: Path | str | None = None,
    tell: Tell | None = None,
    **options: Any,
) -> Adaptation:
    """Convert attentions of a model in place and train it to do what it did before.

        found = adapt_(model, batches, layers=slice(-4, None), rank=32)
        print(found.before.agreement, found.after.agreement)

    model: or a folder, or a name of the hub; `found.model` is the one that was adapted.

    batches: inputs of the model, as `distill_` takes them. held_out: others, on which it is judged;
    None takes every tenth of the batches. count: only so many attentions, those that `plan` finds
    to change the outputs least; budget: as many as take "2x" less at `length`. teacher: the model
    to become like, by default the model as it is now; one that is given stays as it is. A model of
    which some layers are converted already keeps them. quality: a measure of your own, read at
    every evaluation; nothing is chosen by it. folder: the choice and checkpoints go there, and an
    adaptation that was interrupted continues from the last. tell(step, steps, text) hears how far
    it is. layers and options: those of `convert_`.

    First every converted layer learns its original's outputs, then the whole model learns the
    teacher's outputs and hidden states, by AdamW without dropout. What is used before the first
    converted layer stays as it is, tied embeddings too. What does not change, the teacher's answers
    and the states before that layer, is computed once for every batch, as far as there is room
    (`AdaptSettings.remember`). The weights of the best evaluation stay in the model. With
    `AdaptSettings(one_by_one=True)` all of this happens to the last attention, then to the one
    before it, and so on.
    """
    model = opened(model)
    check_model(model)
    chosen = settings or AdaptSettings()
    train, judged = _split(listed(batches), None if held_out is None else listed(held_out))
    _expect_loss(expect_inputs(model, [*train, *judged]), chosen)
    teacher = copy.deepcopy(model) if teacher is None or teacher is model else opened(teacher)
    if not isinstance(layers, Plan) and options.get("example") is None:
        options["example"] = train[0]
    with seeded(chosen.seed):
        if count is not None or budget is not None:  # of all, unless layers says otherwise
            asked = {"count": count, "budget": budget, "length": length}
            told = None if tell is None else _measuring(tell, chosen.steps)
            kept = None if folder is None else Path(folder)
            layers = measured_choice(model, layers, train, asked, kept, told, **options)
            options = {}
        planned = layers if isinstance(layers, Plan) else plan(model, layers, **options)
    turn = _Turn(model, teacher, train, judged, chosen, quality, tell)
    place = None if folder is None else Path(folder) / "checkpoints"
    _expect_same_way(place, chosen.one_by_one)
    with evaluation(teacher):
        found = turn.each(planned, place) if chosen.one_by_one else turn(planned, place)
    found.model = model
    return found


def _measuring(tell: Tell, steps: int) -> Tell:
    """What a plan tells, before the first step."""
    return lambda done, parts, text: tell(0, steps, f"measuring, {done} of {parts}: {text}")


@dataclass(frozen=True)
class _Turn:
    """Attentions that are converted and adapted together: all of them, or one after another."""

    model: nn.Module
    teacher: nn.Module
    train: list[Any]
    judged: list[Any]
    settings: AdaptSettings
    quality: Callable[[nn.Module], float] | None
    tell: Tell | None

    def __call__(self, planned: Plan, folder: Path | None = None) -> Adaptation:
        """All attentions of a plan at once."""
        model, old = self.model, set(converted_layers(self.model))
        with seeded(self.settings.seed):  # what has no weight to start from is drawn
            convert_(model, planned)
        layers = converted_layers(model)
        names = tuple(paths(model, layer)[0] for layer in layers)
        pair = Pair(self.teacher, model, tuple(dict.fromkeys(map(block_of, names))))
        run = Run(
            model, pair, self.train, self.judged, self.settings, self.quality, self.tell,
            new=[layer for layer in layers if layer not in old],
        )  # fmt: skip
        with evaluation(model):
            return run(names, folder)

    def each(self, planned: Plan, folder: Path | None) -> Adaptation:
        """The last attention first, then the one before it; each has its share of the steps, and
        checkpoints of its own."""
        rows = planned.changes[::-1]
        share = self.settings.steps // len(rows)
        if share == 0 < self.settings.steps:
            raise ValueError(
                f"steps is {self.settings.steps}; expected one for each of {len(rows)} attentions"
            )
        untrained = dataclasses.replace(self.settings, steps=0, layerwise=0)
        start = dataclasses.replace(
            self, model=copy.deepcopy(self.model), settings=untrained, tell=None
        )
        whole = start(planned)  # as it would be if nothing were trained
        for number, row in enumerate(rows):
            one = dataclasses.replace(
                self, settings=dataclasses.replace(self.settings, steps=share),
                tell=self._tell_of(number, len(rows), share),
            )  # fmt: skip
            place = None if folder is None else folder / f"turn-{number + 1:02d}"
            found = one(dataclasses.replace(planned, rows=(row,)), place)
            whole.history += [_as_part(each, found, whole, number, share) for each in found.history]
            whole.best, whole.ended = number * share + found.best, found.ended
        return whole

    def _tell_of(self, number: int, count: int, share: int) -> Tell | None:
        tell = self.tell
        if tell is None:
            return None
        named = f"attention {number + 1} of {count}"
        return lambda step, _, text: tell(number * share + step, count * share, f"{named}: {text}")


def _as_part(
    each: Evaluation, found: Adaptation, whole: Adaptation, number: int, share: int
) -> Evaluation:
    """An evaluation of one turn among those of all: blocks before it are those of the original."""
    errors = dict(zip(found.blocks, each.blocks, strict=True))
    return dataclasses.replace(
        each, step=number * share + each.step, turn=number + 1,
        blocks=tuple(errors.get(name, 0.0) for name in whole.blocks),
    )  # fmt: skip


def _expect_same_way(folder: Path | None, one_by_one: bool) -> None:
    """An adaptation continues in the way in which it was begun."""
    if folder is not None and any(folder.glob("step-*" if one_by_one else "turn-*")):
        ways = "all attentions at once", "one attention after another"
        raise ValueError(
            f"{folder} holds an adaptation of {ways[not one_by_one]}; expected the same, or "
            "another folder"
        )


def _expect_loss(found: Any, settings: AdaptSettings) -> None:
    """Labels that are to be learned have to be there."""
    if settings.task and own_loss(found) is None:
        raise ValueError(
            f"task is {settings.task}, but the model gives no loss of its own for the batches; "
            "expected batches with labels, or task=0"
        )


def _split(batches: list[Any], held_out: Iterable[Any] | None) -> tuple[list[Any], list[Any]]:
    if held_out is not None:
        train, judged = batches, list(held_out)
    else:
        judged = batches[::10] if len(batches) > 1 else []
        train = [batch for place, batch in enumerate(batches) if place % 10]
    if not train or not judged:
        raise ValueError(
            f"there are {len(train)} batches to learn from and {len(judged)} held out; expected at "
            "least one of each: two batches or more, or held_out"
        )
    return train, judged
