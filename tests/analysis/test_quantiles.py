"""Chances of numbers: even where they are right, and told where they are not."""

import numpy as np
import pytest
from scipy.stats import norm

from primal_attention.analysis.quantiles import measure_chances


def test_right_chances_are_uniform_and_narrow_ones_are_told():
    rng = np.random.default_rng(0)
    x = rng.normal(size=4000)
    right = measure_chances([norm.cdf(x)], resamples=200)
    assert right.error.value < 0.02
    assert right.within.low < 0.8 < right.within.high
    assert "80 % may be" in str(right)
    assert sum(right.pit) == pytest.approx(1.0)
    narrow = measure_chances([norm.cdf(x / 0.5)], resamples=200)
    assert narrow.within.value == pytest.approx(2 * norm.cdf(0.5 * norm.ppf(0.9)) - 1, abs=0.03)
    assert "too narrow" in str(narrow)
    assert "too wide" in str(measure_chances([norm.cdf(x / 3)], resamples=200))
    assert narrow.error.low > right.error.high
    both = measure_chances([norm.cdf(x), norm.cdf(x / 0.5)], resamples=0)
    assert both.error.value == pytest.approx((right.error.value + narrow.error.value) / 2)


def test_what_is_refused():
    with pytest.raises(ValueError, match="within 0 and 1"):
        measure_chances([[0.2, 1.2]])
