"""How rows are read: learned from the training part, kept in a file, the same afterwards."""

import json

import numpy as np
import pytest
import torch

from primal_attention.tasks import DataError
from primal_attention.tasks.table.columns import Column
from primal_attention.tasks.table.files import Form
from primal_attention.tasks.table.reader import TableReader, chosen

FORM = Form({"age": "number", "city": "category"}, "y", None)
COLUMNS = [
    Column("age", np.array([1.0, 2.0, np.nan, 4.0])),
    Column("city", np.array(["a", "b", None, "a"], dtype=object)),
]


def test_classes_and_back():
    reader = TableReader.fit(FORM, COLUMNS, ["no", "yes", "no", "no"], ("no", "yes"))
    again = TableReader.from_dict(json.loads(json.dumps(reader.to_dict())))
    assert again == reader
    rows = again.rows(COLUMNS, ["no", "yes", "no", "no"], "t.csv")
    assert rows.labels.tolist() == [0, 1, 0, 0]
    assert rows.codes[:, 0].tolist() == [1, 2, 0, 1]
    assert torch.isnan(rows.numbers[2, 0])
    with pytest.raises(DataError, match=r"t\.csv has the class 'maybe'; expected one of no, yes"):
        again.rows(COLUMNS[:2], ["maybe"] * 4, "t.csv")


def test_numbers_have_mean_zero_and_deviation_one():
    reader = TableReader.fit(FORM, COLUMNS, ["1", "3", "5", "7"], ())
    labels = reader.rows(COLUMNS, ["1", "3", "5", "7"], "t.csv").labels
    assert abs(float(labels.mean())) < 1e-12
    assert float(labels.square().mean()) == pytest.approx(1.0)
    assert TableReader.from_dict(json.loads(json.dumps(reader.to_dict()))) == reader
    with pytest.raises(DataError, match=r"t\.csv has the target 'x'; expected finite numbers"):
        reader.rows(COLUMNS, ["1", "x", "2", "3"], "t.csv")


def test_values_that_only_others_have_are_unknown():
    known = chosen(COLUMNS, np.array([0, 3]))  # no "b" among them
    reader = TableReader.fit(FORM, known, ["1", "2"], ())
    assert reader.inputs(COLUMNS)[1][:, 0].tolist() == [1, 0, 0, 1]
