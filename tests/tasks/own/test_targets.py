"""Whether targets are classes or numbers."""

import pytest

from primal_attention.tasks.base import DataError
from primal_attention.tasks.own.targets import are_numbers, classes_in, described


@pytest.mark.parametrize(
    ("targets", "numbers"),
    [
        (["a", "b", "1"], False),
        (["0", "1", "1"], False),
        (["0.5", "1"], True),
        (["1.0", "2.0"], False),
        ([str(i) for i in range(100)], True),
        ([str(i % 30) for i in range(300)], False),
        (["nan", "0.5"], False),
    ],
)
def test_fractions_and_very_many_whole_numbers_are_no_classes(targets, numbers):
    assert are_numbers(targets) is numbers
    assert ("regression" in described(targets)) is numbers


def test_classes_in_their_order():
    assert classes_in(["10", "9", "9"], "a") == ("9", "10")
    assert classes_in(["b", "a", "b"], "a") == ("a", "b")
    assert "largest has 66.7 %" in described(["a", "a", "b"])


def test_one_class_and_classes_of_one_case_are_refused():
    with pytest.raises(DataError, match="has the class 'a' alone; expected two or more"):
        classes_in(["a", "a"], "x.csv")
    with pytest.raises(DataError, match="2 classes with one case each"):
        classes_in(["a", "b"], "x.csv")
