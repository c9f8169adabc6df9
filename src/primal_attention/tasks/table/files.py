"""A csv file whose rows are cases: what its columns are, found out once, and its rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from ...names import near
from ..base import DataError
from ..own.columns import moment_in, target_of, usual_target
from ..own.table import MISSING, Row, Table, is_number, listed, opened
from ..own.targets import are_numbers, as_number
from .columns import Column

KINDS = ("number", "category", "date")
MOSTLY = 0.9  # numbers in a column: then what is none is a mistake
NAMES = 20  # rows; more texts that all differ are names of rows
DAY = 86_400.0  # seconds
BLOCK = 4096  # rows of a file that are in memory at once


@dataclass(frozen=True)
class Form:
    """What the columns of a table are: `kinds` of those that are read, by name and in their order,
    the target, and the one that names the rows."""

    kinds: Mapping[str, str]
    target: str | None
    id: str | None

    def to_dict(self) -> dict[str, Any]:
        return {"kinds": dict(self.kinds), "target": self.target, "id": self.id}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        for name, kind in stored["kinds"].items():
            if kind not in KINDS:
                raise ValueError(f"column {name!r} is a {kind!r}; expected {', '.join(KINDS)}")
        return cls(dict(stored["kinds"]), stored["target"], stored["id"])

    def named_by(self, id: str, table: Table) -> Form:
        """With another column that names the rows."""
        table.place(id, "--id")
        if id in self.kinds:
            raise DataError(f"--id is {id!r}, which the model reads; expected another column")
        return replace(self, id=id)

    def check(self, table: Table) -> None:
        """Raise unless a table has these columns, and no other."""
        for name in self.kinds:
            if name not in table.header:
                raise DataError(
                    f"{table.name} has no column {name!r}; expected {listed(list(self.kinds))}"
                )
        known = [*self.kinds, *(name for name in (self.target, self.id) if name is not None)]
        for name in table.header:
            if name not in known:
                raise DataError(
                    f"{table.name} has a column {name!r}, which the model does not know"
                    f"{near(name, known)}; expected {listed(known)}"
                )


class Block(NamedTuple):
    """Some rows of a file: names of the rows, columns, and targets where they were asked for."""

    names: list[str]
    columns: list[Column]
    targets: list[str]


class TableFile(NamedTuple):
    """A whole file with targets."""

    form: Form
    columns: list[Column]
    targets: list[str]


def read_table(
    path: Path, *, target: str | None, id: str | None, categorical: Sequence[str] = ()
) -> TableFile:
    """A file for training, whose columns are found out. `categorical` are columns that are
    categories though they hold numbers."""
    with opened(path) as lines:
        table = Table(lines, str(path))
        target = usual_target(table) if target is None else target
        for name, option in ((target, "--target"), (id, "--id")):
            if name is not None:
                table.place(name, option)
        apart = {target, id}
        names = [name for name in table.header if name not in apart]
        _check_names(table, names, categorical)
        rows = list(table)
        if not rows:
            raise DataError(f"{path} has no rows; expected some below the names of columns")
        kinds = {name: _kind(table, rows, name, name in categorical) for name in names}
        form = Form(kinds, target, id)
        block = _block(table, rows, form, 0, labelled=True)
        _check_targets(table, rows, target, block.targets)
    return TableFile(form, block.columns, block.targets)


def read_blocks(
    lines: Iterable[str], name: str, form: Form, *, labelled: bool, id: str | None = None
) -> Iterator[Block]:
    """The rows of a file whose columns are known, a few thousand at a time; of new rows the target
    need not be there, nor their names, unless another column `id` is said to have them."""
    table = Table(lines, name)
    if id is not None and id != form.id:
        form = form.named_by(id, table)
    elif form.id not in table.header:
        form = replace(form, id=None)
    form.check(table)
    if labelled and form.target is not None:
        table.place(form.target, "--target")
    rest, done = iter(table), 0
    while rows := list(islice(rest, BLOCK)):
        yield _block(table, rows, form, done, labelled=labelled)
        done += len(rows)
    if not done:
        raise DataError(f"{name} has no rows; expected at least one")


def check_header(path: Path, form: Form) -> None:
    """Raise unless a further file has the columns; no row of it is read."""
    with opened(path) as lines:
        table = Table(lines, str(path))
        form.check(table)
        if form.target is not None:
            table.place(form.target, "--target")


def read_again(path: Path, form: Form) -> TableFile:
    """A further file with targets, as the test set."""
    with opened(path) as lines:
        blocks = list(read_blocks(lines, str(path), form, labelled=True))
    columns = [
        Column(parts[0].name, np.concatenate([part.values for part in parts]))
        for parts in zip(*(block.columns for block in blocks), strict=True)
    ]
    return TableFile(form, columns, [one for block in blocks for one in block.targets])


def _block(table: Table, rows: list[Row], form: Form, first: int, *, labelled: bool) -> Block:
    places = {name: table.header.index(name) for name in form.kinds}
    numbers = [name for name, kind in form.kinds.items() if kind == "number"]
    found = np.array([table.numbers(row, [places[n] for n in numbers]) for row in rows])
    columns = []
    for name, kind in form.kinds.items():
        values: Any
        if kind == "number":
            values = found[:, numbers.index(name)]
        elif kind == "date":
            values = np.array([_day(table, row, places[name]) for row in rows])
        else:
            values = np.array([_text(row.cells[places[name]]) for row in rows], dtype=object)
        columns.append(Column(name, values))
    targets = []
    if labelled and form.target is not None:
        place = table.header.index(form.target)
        targets = [target_of(table, row, place, True) or "" for row in rows]
    if form.id is None:
        names = [str(first + i) for i in range(len(rows))]
    else:
        names = [row.cells[table.header.index(form.id)].strip() for row in rows]
    return Block(names, columns, targets)


# -- what a column is ------------------------------------------------------------------------------


def _check_names(table: Table, names: list[str], categorical: Sequence[str]) -> None:
    if not names:
        raise DataError(
            f"{table.name} has the columns {listed(table.header)}; expected one to learn from "
            "beside the target"
        )
    for name in names:
        if name.lower() == "id":
            raise DataError(
                f"{table.name} has a column {name!r}, which would be learned from; expected --id "
                f"{name}, or a file without it"
            )
    for name in categorical:
        if name not in names:
            raise DataError(
                f"{table.name} has no column {name!r} for --categorical{near(name, names)}; "
                f"expected some of {listed(names)}"
            )


def _kind(table: Table, rows: list[Row], name: str, category: bool) -> str:
    place = table.header.index(name)
    texts = [(row.line, text) for row in rows if (text := _text(row.cells[place])) is not None]
    others = [(line, text) for line, text in texts if not is_number(text)]
    if not others and not category:
        return "number"
    if others and not category:
        if all(_is_date(text) for _, text in texts):
            return "date"
        if len(others) <= (1.0 - MOSTLY) * len(texts):
            line, text = others[0]
            expected = f"a number, as in other rows, or --categorical {name}"
            raise table.error(line, name, text, expected)
    different = len({text for _, text in texts})
    if different == len(texts) > NAMES:
        raise DataError(
            f"{table.name}: all {different} texts of column {name!r} differ, so nothing can be "
            f"learned from them; expected --id {name}, or a file without it"
        )
    return "category"


def _check_targets(table: Table, rows: list[Row], target: str, targets: list[str]) -> None:
    """Raise if targets are numbers but for a few that are none."""
    wrong = [i for i, text in enumerate(targets) if math.isnan(as_number(text))]
    known = [text for text in targets if not math.isnan(as_number(text))]
    if wrong and len(wrong) <= (1.0 - MOSTLY) * len(targets) and are_numbers(known):
        line = rows[wrong[0]].line
        raise table.error(line, target, targets[wrong[0]], "a finite number, as in other rows")


def _text(cell: str) -> str | None:
    text = cell.strip()
    return None if text.lower() in MISSING else text


def _is_date(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _day(table: Table, row: Row, place: int) -> float:
    """A date in days since 1970."""
    return math.nan if _text(row.cells[place]) is None else moment_in(table, row, place) / DAY


def described(file: TableFile) -> str:
    """What the columns are, in words: "3 numbers, 1 date, 2 categories (sex, city)"."""
    shown = []
    for kind in KINDS:
        names = [name for name, own in file.form.kinds.items() if own == kind]
        if names:
            many = {"category": "categories"}.get(kind, f"{kind}s") if len(names) > 1 else kind
            which = f" ({', '.join(names[:8])}{', ...' * (len(names) > 8)})"
            shown.append(f"{len(names)} {many}{which if kind != 'number' else ''}")
    return ", ".join(shown)
