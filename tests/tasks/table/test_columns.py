"""Columns of a table: numbers, categories, and what is missing."""

import numpy as np
import pytest

from primal_attention.tasks.table.columns import Column, Columns, Scale, from_objects, text_of


def test_numbers_are_scaled_by_quartiles_and_drawn_in():
    values = np.array([0.0, 1.0, 2.0, 3.0, 4.0, np.nan, 1e9])
    scale = Scale.of(values)
    assert scale.centre == 2.5
    scaled = scale(values)
    assert np.isnan(scaled[5])
    assert np.abs(scaled[np.isfinite(scaled)]).max() <= 3.0  # one wild number moves nothing
    assert Scale.of(np.full(3, 7.0)) == Scale(7.0, 1.0)
    assert Scale.of(np.array([np.nan])) == Scale(0.0, 1.0)


def test_categories_are_texts_and_zero_is_unknown():
    column = Column("kind", np.array(["b", None, "a", 1.0, np.nan], dtype=object))
    columns = Columns.of([column])
    assert columns.known == (("1", "a", "b"),)
    numbers, codes = columns([column])
    assert numbers.shape == (5, 0)
    assert codes[:, 0].tolist() == [3, 0, 2, 1, 0]
    new = Column("kind", np.array(["c", 1, "a", "b", "b"], dtype=object))
    assert columns([new])[1][:, 0].tolist() == [0, 1, 2, 3, 3]
    assert text_of(True) == "True"


def test_objects_are_numbers_if_all_are():
    assert from_objects("x", np.array([1, None, 2.5], dtype=object)).is_number
    assert not from_objects("x", np.array([1, "2"], dtype=object)).is_number
    assert not from_objects("x", np.array([1, 2], dtype=object), category=True).is_number


def test_json_gives_them_back():
    columns = Columns.of([
        Column("x", np.array([1.0, 2.0])), Column("k", np.array(["u", "v"], dtype=object)),
    ])  # fmt: skip
    assert Columns.from_dict(columns.to_dict()) == columns
    texts = [Column("x", np.array(["a", "b"], dtype=object)), Column("k", np.array([1.0, 2.0]))]
    with pytest.raises(ValueError, match="column x has the value 'a'; expected numbers"):
        columns(columns.as_fitted(texts))
