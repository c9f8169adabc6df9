"""A trained run of a table: rows in, answers in the light of the table it was trained on.

The folder of the run has the weights and a summary of the table, `memory.safetensors`, not the
table. `estimator` is the run as a `PrimalTableClassifier` or a `PrimalTableRegressor`, fitted.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...models.table_context import to_tensors
from ...runs.errors import RunError
from ...runs.files import read_object
from ...runs.folder import MEMORY
from ...tasks.own.columns import Columns as SeriesColumns
from ...tasks.own.table import opened
from ...tasks.table.columns import text_of
from ...tasks.table.files import read_blocks
from ...tasks.table.reader import TableReader
from ..checkpoint import read_tensors
from ..config import TableConfig
from ..estimator.base import prefixed
from ..estimator.table import PrimalTableClassifier, PrimalTableRegressor
from .model import TrainedModel, stored_weights

Estimator = PrimalTableClassifier | PrimalTableRegressor


@dataclass(frozen=True, eq=False)
class TrainedTable(TrainedModel):
    """X in `predict` and `predict_proba` is a csv file with the columns of training, a pandas frame
    with them, or an array of them in their order."""

    config: TableConfig  # type: ignore[assignment]
    estimator: Estimator

    @property
    def reads(self) -> str:
        return "rows"

    def absorb(self, X: Any, y: Any) -> None:
        """Learn from further labelled rows, without a step of training; the folder of the run stays
        as it is, see `estimator.save`."""
        if not self.predicts_values:
            y = np.array([text_of(label) for label in y])  # 2 is the class "2"
        with _unnamed():
            self.estimator.absorb(X, y)

    @property
    def columns(self) -> SeriesColumns:
        form = self.reader.form
        return SeriesColumns(form.target, form.id)

    @property
    def layout(self) -> dict[str, Any]:
        found: dict[str, Any] = self.reader.form.to_dict()
        return found

    def memory(self) -> dict[str, Tensor]:
        return to_tensors(self.estimator.summary_)

    def outputs(self, X: Any) -> Tensor:
        if isinstance(X, str | Path):
            return torch.cat([found for _, found in self.stream(Path(X))])
        with _unnamed():
            return self.estimator._answers(X)

    def stream(
        self, path: Path, columns: SeriesColumns | None = None
    ) -> Iterator[tuple[list[str], Tensor]]:
        """Names and outputs of the rows of a csv file, a few thousand at a time. `columns` may name
        the column `id` with the names of rows, where it has one."""
        if columns is not None and columns.time is not None:
            raise RunError(f"{self.path} reads rows, which no time orders; expected no --time")
        with opened(path) as lines:
            yield from self.of_lines(lines, str(path), None if columns is None else columns.id)

    def of_lines(
        self, lines: Iterable[str], name: str, id: str | None = None
    ) -> Iterator[tuple[list[str], Tensor]]:
        """Likewise of the lines of a csv file, which errors call by a name."""
        reader: TableReader = self.reader
        for block in read_blocks(lines, name, reader.form, id=id, labelled=False):
            yield block.names, self.answer(*reader.inputs(block.columns))

    @torch.no_grad()
    def answer(self, numbers: Tensor, codes: Tensor) -> Tensor:
        """Outputs of rows as the network takes them."""
        return self.estimator.net_.answer(numbers, codes, self.estimator.summary_)


@contextmanager
def _unnamed() -> Iterator[None]:
    """Arrays have no names of columns: the order of training is meant."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        yield


def example_rows(model: TrainedTable, rows: int) -> tuple[Tensor, Tensor]:
    """Rows as the network takes them, by chance; some of their values are missing."""
    generator, columns = torch.Generator().manual_seed(rows), model.reader.columns
    numbers = torch.randn(rows, columns.numbers, generator=generator, dtype=torch.float64)
    numbers[numbers > 2.0] = torch.nan
    codes = [torch.randint(count + 1, (rows,), generator=generator) for count in columns.categories]
    empty = torch.zeros(rows, 0, dtype=torch.long)
    return numbers, torch.stack(codes, 1) if codes else empty


def load_table(path: Path, config: TableConfig) -> TrainedTable:
    """The model in the folder of a finished run, or of an export."""
    for name in ("reader.json", MEMORY):
        if not (path / name).is_file():
            raise RunError(f"{path} has no {name}; expected the folder of a finished run")
    weights, memory = read_tensors(stored_weights(path)), read_tensors(path / MEMORY)
    with _intact(path / "reader.json"):
        reader = TableReader.from_dict(read_object(path / "reader.json"))
    with _intact(path), torch.random.fork_rng(devices=[]):  # random weights are replaced at once
        estimator = _estimator(config, reader, weights, memory)
    return TrainedTable(path, config, reader, estimator.net_, estimator)


@contextmanager
def _intact(place: Path) -> Iterator[None]:
    """What fails in it is the fault of a file."""
    try:
        yield
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, RunError):
            raise
        why = str(error).splitlines()[0] if str(error) else repr(error)
        raise RunError(f"{place} is damaged: {why}") from error


def _estimator(
    config: TableConfig, reader: TableReader, weights: dict[str, Tensor], memory: dict[str, Tensor]
) -> Estimator:
    kind = PrimalTableClassifier if reader.scale is None else PrimalTableRegressor
    estimator: Any = kind(
        **config.model_options(),
        networks=1,
        lr=config.lr,
        weight_decay=config.weight_decay,
        batch_size=config.batch_size,
        max_context=config.max_context,
        validation_fraction=config.validation_fraction,
        random_state=config.seed,
    )
    names = list(reader.form.kinds)
    estimator.n_features_in_ = len(names)
    estimator.feature_names_in_ = np.array(names, dtype=object)
    content: dict[str, Any] = {"columns": reader.columns.to_dict(), "history": [], "steps": 0}
    if reader.scale is None:
        estimator.classes_ = np.array(reader.classes)
    else:
        content["values"] = list(reader.scale)
    estimator._restore(content, prefixed("net", weights) | prefixed("summary", memory))
    found: Estimator = estimator
    return found
