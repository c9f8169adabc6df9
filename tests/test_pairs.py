from itertools import combinations, product

import pytest

from .pairs import pairwise


@pytest.mark.parametrize("sizes", [(2, 2), (3, 2, 2), (6, 3, 2, 2), (2, 5, 3, 2, 2)], ids=str)
def test_every_two_values_meet(sizes):
    axes = {f"axis_{i}": [f"{i}:{j}" for j in range(size)] for i, size in enumerate(sizes)}
    names, rows = pairwise(**axes).args
    assert names == list(axes)
    found = {pair for row in rows for pair in combinations(row, 2)}
    for one, other in combinations(axes.values(), 2):
        assert found >= set(product(one, other))
    first, second = sorted(sizes)[-2:]
    assert len(rows) <= 1.5 * first * second


def test_joined_axes_keep_to_their_tuples():
    names, rows = pairwise(kind="ab", fast__grad=[(True, True), (False, True)]).args
    assert names == ["kind", "fast", "grad"]
    expected = [["a", False, True], ["a", True, True], ["b", False, True], ["b", True, True]]
    assert sorted(rows) == expected
