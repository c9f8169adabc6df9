"""Intervals and verdicts."""

import pytest
from scipy.stats import binomtest, t

from primal_attention.reproduce.verdict import Estimate, average, estimate, judge, wilson


@pytest.mark.parametrize(("right", "cases"), [(363, 370), (0, 20), (20, 20), (37, 100)])
def test_wilson_is_scipys(right, cases):
    expected = binomtest(right, cases).proportion_ci(method="wilson")
    assert wilson(right / cases, cases) == pytest.approx((expected.low, expected.high))


def test_wilson_wants_cases():
    with pytest.raises(ValueError, match="cases is 0; expected at least 1"):
        wilson(0.5, 0)


def test_seeds_and_test_set_are_combined():
    values = [0.90, 0.92, 0.94]
    found = estimate(values, 200)
    half = t.ppf(0.975, 2) * 0.02 / 3**0.5
    low, high = wilson(0.92, 200)
    assert found.mean == pytest.approx(92)
    assert found.deviation == pytest.approx(2)
    assert found.low == pytest.approx(92 - 100 * (half**2 + (0.92 - low) ** 2) ** 0.5)
    assert found.high == pytest.approx(92 + 100 * (half**2 + (high - 0.92) ** 2) ** 0.5)
    assert found.seeds == 3


def test_one_seed_has_the_interval_of_the_test_set():
    found = estimate([0.9], 100)
    low, high = wilson(0.9, 100)
    assert (found.low, found.high) == pytest.approx((100 * low, 100 * high))
    assert found.deviation is None


def test_all_right_cannot_be_exceeded():
    found = estimate([1.0, 1.0], 2199)
    assert found.high == pytest.approx(100)
    assert judge(found, 100, 0.5) == "reproduced"


@pytest.mark.parametrize(
    ("low", "high", "higher", "lower"),
    [
        (97.0, 98.0, "not reproduced", "better"),
        (97.0, 98.36, "reproduced", "reproduced"),  # 98.4 may be 98.35
        (97.0, 98.34, "not reproduced", "better"),
        (98.44, 99.0, "reproduced", "reproduced"),
        (98.46, 99.0, "better", "not reproduced"),
        (90.0, 100.0, "reproduced", "reproduced"),
    ],
)
def test_verdicts(low, high, higher, lower):
    ours = Estimate((low + high) / 2, low, high)
    assert judge(ours, 98.4, 0.05) == higher
    assert judge(ours, 98.4, 0.05, better="lower") == lower


def test_average_shrinks_as_independent_parts_do():
    found = average([Estimate(50, 47, 54), Estimate(70, 66, 73)])
    assert found == Estimate(60, 60 - 2.5, 60 + 2.5)
