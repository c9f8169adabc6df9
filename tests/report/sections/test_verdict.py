"""The comparison of two configurations."""

import pytest

from primal_attention.report.sections.verdict import welch_interval


def test_welch_interval_is_scipys():
    from scipy.stats import ttest_ind

    a, b = [0.9, 0.92, 0.95], [0.8, 0.7, 0.85, 0.9]
    expected = ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    assert welch_interval(a, b) == pytest.approx((expected.low, expected.high))
    assert welch_interval([1.0], b) is None
    assert welch_interval([1.0, 1.0], [0.5, 0.5]) == (0.5, 0.5)
