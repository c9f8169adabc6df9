"""From the body of a request to cases, and from cases to an answer.

application/json   {"series": [[[...], ...], ...]}    (cases, channels, timepoints), or (cases,
                   timepoints) of one channel; lengths may differ from case to case; null = missing
text/csv           a table with the columns of training; the target need not be there; the only
                   type for a run of a table
image/png, image/jpeg
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..runs.errors import RunError
from ..tasks.images.folder import decode_bytes
from ..tasks.own.columns import cases_of
from ..tasks.own.table import Table
from ..tasks.series import Floats
from ..train.trained import TrainedModel
from ..train.trained.table import TrainedTable

Answer = dict[str, Any]


class BadRequest(ValueError):
    """What came cannot be understood; the message is for the one who sent it."""


def answer(model: TrainedModel, body: bytes, kind: str, *, most: int) -> Answer:
    """Predictions for the cases in a body of a media type; more than `most` are refused."""
    if model.reads_images:
        if kind not in ("image/png", "image/jpeg"):
            raise BadRequest(f"the type is {kind!r}; expected image/png or image/jpeg")
        side = model.reader.shape["size"]
        names, outputs = ["image"], model.outputs(decode_bytes(body, side, "the body")[None])
    elif isinstance(model, TrainedTable):
        if kind != "text/csv":
            raise BadRequest(f"the type is {kind!r}; expected text/csv, a table of rows")
        names, outputs = from_rows(model, body, most)
    elif kind == "application/json":
        series = from_json(body, model.reader.shape["channels"])
        names = [str(i) for i in range(len(series))]
        outputs = _of(model, series, most)
    elif kind == "text/csv":
        names, series = from_csv(model, body, most)
        outputs = _of(model, series, most)
    else:
        raise BadRequest(f"the type is {kind!r}; expected application/json or text/csv")
    return told(model, names, outputs)


def told(model: TrainedModel, names: list[str], outputs: Tensor) -> Answer:
    """What is sent back."""
    answers = model.answers(outputs).tolist()
    if model.predicts_values:
        return {
            "predictions": [
                {"case": name, "value": value} for name, value in zip(names, answers, strict=True)
            ]
        }
    rows = model.probabilities(outputs).tolist()
    return {
        "predictions": [
            {
                "case": name,
                "class": found,
                "probabilities": dict(zip(model.classes, row, strict=True)),
            }
            for name, found, row in zip(names, answers, rows, strict=True)
        ]
    }


def from_json(body: bytes, channels: int) -> list[Floats]:
    """Series (length_i, channels) of a JSON document."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("series"), list):
        raise BadRequest('expected {"series": [...]}, a list of cases')
    if not document["series"]:
        raise BadRequest("series is empty; expected at least one case")
    return [_case(i, case, channels) for i, case in enumerate(document["series"])]


def from_csv(model: TrainedModel, body: bytes, most: int) -> tuple[list[str], list[Floats]]:
    """Names and series of a table in the layout of training."""
    table = Table(_lines(body), "the body")
    columns = model.columns.of(table, labelled=False)
    names, series = [], []
    for case in cases_of(table, columns, labelled=False):
        names.append(case.name)
        series.append(case.series)
        if len(names) > most:
            break
    if not names:
        raise BadRequest("the table has no rows; expected at least one case")
    return names, series


def from_rows(model: TrainedTable, body: bytes, most: int) -> tuple[list[str], Tensor]:
    """Names and outputs of the rows of a table."""
    names, outputs = list[str](), list[Tensor]()
    for more, found in model.of_lines(_lines(body), "the body"):
        names += more
        outputs.append(found)
        if len(names) > most:
            raise BadRequest(f"there are more than {most} rows; expected fewer in one request")
    return names, torch.cat(outputs)


def _lines(body: bytes) -> Iterable[str]:
    return io.TextIOWrapper(io.BytesIO(body), encoding="utf-8-sig", newline="")


def _of(model: TrainedModel, series: list[Floats], most: int) -> Tensor:
    if len(series) > most:
        raise BadRequest(f"there are more than {most} cases; expected fewer in one request")
    try:
        return model.of_series(series)
    except RunError as error:
        raise BadRequest(str(error)) from error


def _case(i: int, case: Any, channels: int) -> Floats:
    rows = case if isinstance(case, list) and case and isinstance(case[0], list) else [case]
    if not all(isinstance(row, list) and row for row in rows):
        raise BadRequest(f"case {i} is no list of numbers; expected (channels, timepoints)")
    if len({len(row) for row in rows}) > 1:
        lengths = ", ".join(str(len(row)) for row in rows[:8])
        raise BadRequest(f"case {i} has channels of lengths {lengths}; expected one length")
    if len(rows) != channels:
        raise BadRequest(f"case {i} has {len(rows)} channels; expected {channels}")
    values = np.array([[_number(i, value) for value in row] for row in rows])
    return values.T


def _number(i: int, value: Any) -> float:
    if value is None:
        return math.nan
    try:
        found = math.inf if isinstance(value, bool | str | list | dict) else float(value)
    except OverflowError:
        found = math.inf
    if math.isinf(found):
        said = f"case {i} has {str(value)[:40]!r}"
        raise BadRequest(f"{said}; expected finite numbers, null = missing")
    return found
