"""The model of a finished run, and the data it was judged on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from ..runs.errors import RunError
from ..runs.files import read_object
from ..runs.folder import WEIGHTS
from ..tasks.classification.objective import Classification
from ..tasks.classification.result import ClassificationResult
from ..tasks.events.objective import Events
from ..tasks.events.sets import EventData
from ..tasks.language.objective import Language
from ..tasks.language.text import TextData
from ..tasks.objective import Objective
from ..tasks.table.objective import TableObjective
from .asked import MOST, Asked, AskedCases, AskedEvents, AskedTokens
from .checkpoint import load_weights
from .run import load, read_config
from .seeds import SEEDS_FILE, seeds_in


@dataclass(frozen=True, eq=False)
class Opened:
    """A model and the cases that it is judged on; `held_out` are others that it has not learned
    from, None where there are none."""

    model: Any
    judged: Asked
    held_out: Asked | None


def open_asked(run: Path, most: int | None = None) -> Opened:
    """A finished run that says a class: of cases, of the next event, of the next token; of the last
    two about `most` are asked. The test set where there is one, else what chose the epoch."""
    data, model = open_any(run)
    if isinstance(data, Events | Language):
        return _of_what_comes_next(data, model, MOST if most is None else most)
    found = with_classes(run, data)
    test = found.test()
    if test is None or test is found.selection:
        return Opened(model, AskedCases(found.selection, found.split), None)
    return Opened(model, AskedCases(test, "test"), AskedCases(found.selection, "validation"))


def _of_what_comes_next(data: Events | Language, model: nn.Module, most: int) -> Opened:
    test: Any = data.test()
    found: Any
    if isinstance(data, Events):
        held_out: Asked = AskedEvents(data.selection, "validation", most)
        found = None if test is None else AskedEvents(EventData(test), "test", most)
    else:
        known = len(data.vocabulary)
        held_out = AskedTokens(data.selection, "validation", known, most)
        pieces = None if test is None else TextData(test, data.config.length)
        found = None if pieces is None else AskedTokens(pieces, "test", known, most)
    return Opened(model, held_out, None) if found is None else Opened(model, found, held_out)


def open_classes(run: Path) -> tuple[Classification, nn.Module]:
    """`open_run` of a run that learned classes."""
    data, model = open_run(run)
    return with_classes(run, data), model


def with_classes(run: Path, data: Objective[Any, Any]) -> Classification:
    """The objective, if it learned classes of single cases; a RunError says that it did not."""
    if isinstance(data, TableObjective):
        raise RunError(
            f"{run} answers rows in the light of a table ({data.config.task}); expected a run of "
            "series, tokens, images, events or a text"
        )
    if not isinstance(data, Classification) or not issubclass(
        data.result_class, ClassificationResult
    ):
        raise RunError(f"{run} learned no classes ({data.config.task}); expected a run that did")
    return data


def open_run(run: Path) -> tuple[Classification, nn.Module]:
    """`open_any` of a run that learned a label for each case."""
    data, model = open_any(run)
    if not isinstance(data, Classification):
        name = data.config.task
        raise RunError(f"{run} learned no label a case ({name}); expected a run that did")
    return data, model


def open_any(run: Path) -> tuple[Objective[Any, Any], nn.Module]:
    """The objective of a run, with its data, and the model with the best weights, in evaluation
    mode. A RunError says what the run lacks."""
    config = read_config(run)
    if not (run / WEIGHTS).exists():
        raise RunError(f"{run} has no {WEIGHTS}; expected a run that ended an epoch")
    data = load(config)
    model = data.model()
    load_weights(model, run / WEIGHTS)
    return data, model.eval()


def runs_in(path: Path) -> dict[int, Path]:
    """{seed: folder} of the finished runs of a folder of seeds, or the run itself."""
    if not (path / SEEDS_FILE).exists():
        seed = read_object(path / "config.json").get("seed", 0)
        return {int(seed): path}
    return dict(_finished(path))


def _finished(path: Path) -> Iterator[tuple[int, Path]]:
    for seed in seeds_in(path):
        if (path / f"seed-{seed}" / "result.json").exists():
            yield seed, path / f"seed-{seed}"
