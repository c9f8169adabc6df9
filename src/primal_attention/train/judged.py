"""The model of a finished run, and the data it was judged on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import nn

from ..runs.errors import RunError
from ..runs.files import read_json, read_object
from ..runs.folder import WEIGHTS
from ..tasks import get_task
from ..tasks.classification.objective import Classification
from ..tasks.classification.result import ClassificationResult
from .checkpoint import load_weights
from .run import load
from .seeds import SEEDS_FILE


def open_classes(run: Path) -> tuple[Classification, nn.Module]:
    """`open_run` of a run that learned classes."""
    data, model = open_run(run)
    if not issubclass(data.result_class, ClassificationResult):
        raise RunError(f"{run} learned no classes ({data.config.task}); expected a run that did")
    return data, model


def open_run(run: Path) -> tuple[Classification, nn.Module]:
    """The objective of a run that learned a label for each case, with its data, and the model with
    the best weights, in evaluation mode. A RunError says what the run lacks."""
    settings = read_object(run / "config.json")
    task = get_task(str(settings.get("task")))
    if not issubclass(task.objective, Classification):
        raise RunError(f"{run} learned no label a case ({task.name}); expected a run that did")
    if not (run / WEIGHTS).exists():
        raise RunError(f"{run} has no {WEIGHTS}; expected a run that ended an epoch")
    data: Any = load(task.settings.from_dict(settings))
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
    document = read_json(path / SEEDS_FILE)
    seeds = document.get("seeds") if isinstance(document, dict) else None
    if not isinstance(seeds, list):
        raise RunError(f"{path / SEEDS_FILE} names no seeds; expected a list of them")
    for seed in seeds:
        if (path / f"seed-{seed}" / "result.json").exists():
            yield int(seed), path / f"seed-{seed}"
