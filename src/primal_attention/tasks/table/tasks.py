"""The tasks `table/...`: anybody's csv file whose rows are cases."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base import DataError, Task
from ..files import named_files
from ..own.targets import are_numbers, as_number, classes_in
from ..own.targets import described as described_targets
from ..placed import PlacedTask
from ..series import Integers, split_by_value, stratified_split
from .columns import text_of
from .files import TableFile, check_header, described, read_again, read_table
from .rows import asked_at_once
from .settings import FIND_OUT, TableConfig, categories_of, file_of

if TYPE_CHECKING:
    from .objective import TableObjective

STEPS, PASSES = 400, 12  # of a training, whichever is more
FEWEST = 10  # rows


@dataclass(frozen=True, eq=False)
class TableSet:
    """A file, its targets, and the classes among them, none if they are numbers."""

    name: str
    file: TableFile
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.file.targets)

    def fingerprint(self) -> str:
        """A hash of everything that is read of the file."""
        digest = hashlib.sha256(repr((self.file.form, self.file.targets)).encode())
        for column in self.file.columns:
            whole = column.values.astype("<f8").tobytes() if column.is_number else None
            digest.update(whole or repr([text_of(value) for value in column.values]).encode())
        return digest.hexdigest()


@dataclass(frozen=True, kw_only=True)
class TableTask(PlacedTask[TableSet]):
    """The file that `--data` names, and perhaps that of `--test`."""

    any_data: bool = True
    files: Mapping[str, Path] = field(default_factory=dict)
    columns: Mapping[str, Any] = field(default_factory=dict)  # target, id, categorical
    recipes: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"default": {}})

    @property
    def settings(self) -> type[TableConfig]:
        return TableConfig

    def bound(self, settings: TableConfig) -> TableTask:
        """With its files, and as many rows in a step, and steps, as suit its size."""
        where = settings.where()
        file = _read(where)
        kept = max(2, round((1 - settings.validation_fraction) * len(file.targets)))
        default = sized(kept, settings.batch_size)
        columns = {name: where.get(name) for name in ("target", "id", "categorical")}
        recipes, files = {**self.recipes, "default": default}, named_files(settings)
        if "test" in files:  # before the training, since its rows are read after it
            check_header(files["test"], file.form)
        return replace(self, files=files, columns=columns, recipes=recipes)

    def places(self, data_dir: Path | str | None) -> Mapping[str, Path]:
        return self.files

    def read(self, place: Path, split: str) -> TableSet:
        train = _read({"data": self.files["train"], **self.columns})
        file = train if split == "train" else read_again(place, train.form)
        return TableSet(str(place), file, self.classes(train, str(self.files["train"])))

    def classes(self, train: TableFile, name: str) -> tuple[str, ...]:
        """The classes of the training set, none of numbers; checked."""
        raise DataError(f"{self.name} has no data; expected --data FILE and --target COLUMN")

    def how_to_get(self, data_dir: Path | str | None, missing: Sequence[str]) -> str:
        if self.files:
            return "no test set was named; expected --test FILE"
        return "expected --data FILE, a csv file with a row for each case, and --target COLUMN"


class ClassesTask(TableTask):
    """The target is a class."""

    @property
    def objective(self) -> type[TableObjective]:
        from .objective import TableClasses

        return TableClasses

    def classes(self, train: TableFile, name: str) -> tuple[str, ...]:
        return classes_in(train.targets, name)

    def hold_out(self, whole: TableSet, fraction: float, seed: int) -> tuple[Integers, Integers]:
        return stratified_split(np.array(whole.file.targets), fraction, seed)


class ValuesTask(TableTask):
    """The target is a number."""

    @property
    def objective(self) -> type[TableObjective]:
        from .objective import TableValues

        return TableValues

    def classes(self, train: TableFile, name: str) -> tuple[str, ...]:
        values = [as_number(target) for target in train.targets]
        wrong = [t for t, value in zip(train.targets, values, strict=True) if math.isnan(value)]
        if wrong:
            raise DataError(
                f"{name} has the target {wrong[0]!r}; expected finite numbers for {self.name}"
            )
        if len(set(values)) == 1:
            raise DataError(f"{name} has the target {values[0]:g} alone; expected different ones")
        return ()

    def hold_out(self, whole: TableSet, fraction: float, seed: int) -> tuple[Integers, Integers]:
        values = np.array([as_number(target) for target in whole.file.targets])
        return split_by_value(values, fraction, seed)


class FoundOutTask(ClassesTask):
    """One of the two, found out from the target."""

    def found(self, given: Mapping[str, Any]) -> tuple[str, str]:
        file = _read(given)
        kind = "table/values" if are_numbers(file.targets) else "table/classes"
        facts = f"{len(file.targets):,} rows, {described(file)}; {file.form.target!r} has "
        return kind, f"{given['data']}: {facts}{described_targets(file.targets)} ({kind})"


def sized(rows: int, most: int) -> dict[str, Any]:
    """Settings for so many rows to learn from: a part of them is asked in a step."""
    asked = asked_at_once(rows, most)
    epoch = TableConfig(task=FIND_OUT).epoch_steps or 1
    steps = max(STEPS, PASSES * math.ceil(rows / asked))
    epochs = math.ceil(steps / epoch)
    return {"batch_size": asked, "epochs": epochs, "warmup_steps": epochs * epoch // 10}


def _read(where: Mapping[str, Any]) -> TableFile:
    path = file_of(where)
    facts = path.stat()
    file = _read_once(
        path, where.get("target"), where.get("id"), categories_of(where),
        (facts.st_size, facts.st_mtime_ns),
    )  # fmt: skip
    if len(file.targets) < FEWEST:
        raise DataError(
            f"{path} has {len(file.targets)} rows; expected at least {FEWEST}, to learn from and "
            "to choose by"
        )
    return file


@lru_cache(maxsize=1)
def _read_once(
    path: Path,
    target: str | None,
    id: str | None,
    categorical: tuple[str, ...],
    state: tuple[int, int],
) -> TableFile:
    """While the file stays the same: to see what it is, and to train on it."""
    return read_table(path, target=target, id=id, categorical=categorical)


def table_tasks() -> list[Task]:
    """All of them."""
    facts = "--data FILE --target COLUMN, perhaps --test FILE"
    return [
        FoundOutTask(FIND_OUT, "your own table, a row for each case: found out which", facts=facts),
        ClassesTask("table/classes", "classes of the rows of a table of yours", facts=facts),
        ValuesTask("table/values", "numbers for the rows of a table of yours", facts=facts),
    ]
