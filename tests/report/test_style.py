"""Labels are pushed apart, no further than needed."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from primal_attention.report.style import spread

GAP = 0.1


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9))
def test_labels_stay_apart_in_order_and_inside(heights):
    placed = spread(heights, GAP)
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    sorted_places = [placed[i] for i in order]
    for low, high in pairwise(sorted_places):
        assert high - low >= GAP - 1e-9
    assert max(placed) <= 1 + 1e-9
    assert min(placed) >= -1e-9


def test_labels_that_are_apart_stay():
    assert spread([0.9, 0.1, 0.5], GAP) == [0.9, 0.1, 0.5]
