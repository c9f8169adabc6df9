"""What would fill a cell of a table: the settings of its runs, or why there are none."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..bench.arena import PEER_OPTIONS
from ..tasks import get_task
from ..train.config import EngineConfig, RunConfig
from .decisions import decision_config
from .paper_tables import Figure, PaperTable, table

MODELS: Mapping[str, tuple[str, ...]] = {
    "Trans.": ("softmax", "softmax"),
    "Primal.": ("primal", "primal"),
    "Primal.+Trans.": ("softmax", "primal"),
    **{
        name: (attention, attention)
        for name, attention in {
            "Linear.": "linear", "Re.": "reformer", "Long.": "longformer", "Per.": "performer",
            "YOSO-E": "yoso", "Cos.": "cosformer", "SOFT": "soft", "Flow.": "flow",
            "Lin.": "linformer", "Nyström.": "nystrom",
        }.items()
    },
}  # fmt: skip
SPELLING = {"HandWriting": "Handwriting", "HeartBeat": "Heartbeat"}  # of the archive
NO_DATA = "the data is not here; `primal data` says how to get it"
NOT_PUBLISHED = "needs the images of ImageNet-1K and the trained models, which are not published"
IMAGENET_CLASSES = 100
WEIGHTS = {"No": "free", "Yes": "data"}  # data-dependent
QUICK: Mapping[str, Any] = {
    "width": 16, "heads": 2, "feedforward": 16, "rank": 4, "epochs": 2, "max_length": 64,
}  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """A figure of the paper and the settings that reproduce it, or the reason why nothing does."""

    row: str
    column: str
    figure: Figure
    config: EngineConfig | None = None
    why: str = ""


def cells_of(
    name: str,
    part: str | None = None,
    *,
    protocol: str = "paper",
    quick: bool = False,
    data_dir: Path | str | None = None,
    with_data: bool = True,
) -> list[Cell]:
    """The cells of a table, or of a part of it, that training fills. with_data: those whose data is
    not here have a reason instead of settings."""
    found = table(name)
    data = None if data_dir is None else str(Path(data_dir).absolute())
    changes: dict[str, Any] = {"protocol": protocol, "data_dir": data}
    asked = found.select(part)
    return [_cell(found, row, column, changes, quick, with_data) for row, column in asked]


def _cell(
    found: PaperTable,
    row: str,
    column: str,
    changes: dict[str, Any],
    quick: bool,
    with_data: bool,
) -> Cell:
    figure = found.figure(row, column)
    if found.name in ("table4", "table7"):
        acting, why = decision_config(found.name, row, column, changes["data_dir"], quick=quick)
        return Cell(row, column, figure, acting, why)
    task, attention, own = _recipe(found, row, column)
    if attention is None:
        return Cell(row, column, figure, why=NOT_PUBLISHED)
    if column == "Top-5":
        return Cell(row, column, figure, why="a run reports how often the first guess is right")
    if with_data and (why := _no_data(found, task, changes["data_dir"])):
        return Cell(row, column, figure, why=why)
    config = paper_config(task, attention, **own, **changes)
    return Cell(row, column, figure, _quick(config) if quick else config)


def paper_config(task: str, attention: tuple[str, ...], **changes: Any) -> RunConfig:
    """The paper's settings for a task and a model, with some of them changed."""
    recipe = "deit" if task.startswith("images/") else "paper"
    fields = get_task(task).recipe(recipe, attention)
    fields |= {"task": task, "recipe": recipe, "attention": attention} | changes
    config = RunConfig.from_dict(fields)
    config.validate()
    return config


def _recipe(
    found: PaperTable, row: str, column: str
) -> tuple[str, tuple[str, ...] | None, dict[str, Any]]:
    """Task, attentions and settings of their own; without attentions nothing can be run."""
    trans = MODELS["Primal.+Trans."]
    match found.name:
        case "table1":
            return _uea(row), MODELS[column], {}
        case "table2":
            attention = MODELS[column]
            options = {a: dict(PEER_OPTIONS[a]) for a in {*attention} if a in PEER_OPTIONS}
            return _lra(row), attention, {"options": options} if options else {}
        case "table5":
            last = "primal" if row.startswith("Primal.") else "softmax"
            return "images/folder", ("softmax",) * 11 + (last,), {}
        case "table6":
            name, rank = row.split(" s=")
            own = {"rank": int(rank), "eta": float(column.removeprefix("eta="))}
            return _uea(name), MODELS["Primal."], own
        case "table8":
            return _uea(column), trans, {"weights": WEIGHTS[row]}
        case "table9":
            return _lra(found.read_as.get(column, column)), trans, {"weights": WEIGHTS[row]}
    return "", None, {}


def _uea(name: str) -> str:
    return f"uea/{SPELLING.get(name, name)}"


def _lra(name: str) -> str:
    return f"lra/{name.split()[0].lower()}"


def _quick(config: RunConfig) -> RunConfig:
    """A run that shows that everything works, and whose accuracy means nothing."""
    steps = 2 if config.epoch_steps or config.task.startswith("images/") else None
    batch = min(config.batch_size, 32)
    options = {name: own for name, own in config.options.items() if name == "reformer"}
    return dataclasses.replace(
        config, **QUICK, epoch_steps=steps, warmup_steps=0, batch_size=batch, options=options
    )


def _no_data(found: PaperTable, task: str, data_dir: str | None) -> str:
    """Why there is nothing to learn from; nothing if there is."""
    status = get_task(task).status(data_dir)
    if status.missing:
        return NO_DATA
    return _other_images(status.places["train"]) if found.name == "table5" else ""


def _other_images(train: str) -> str:
    """Why a folder of images is not the paper's; nothing if it may be."""
    classes = sum(path.is_dir() for path in Path(train).iterdir())
    if classes == IMAGENET_CLASSES:
        return ""
    return f"{train} has {classes} classes; expected those of ImageNet-100"
