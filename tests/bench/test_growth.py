"""Exponents are exact for powers, and forecasts follow them."""

import pytest

from primal_attention.bench.growth import forecast, growth_exponent

LENGTHS = [2**k for k in range(6, 13)]


@pytest.mark.parametrize("power", [-0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0])
def test_powers_are_found_exactly(power):
    values = [3e-7 * n**power for n in LENGTHS]
    assert growth_exponent(LENGTHS, values) == pytest.approx(power, abs=1e-12)
    assert growth_exponent(LENGTHS[:2], values[:2]) == pytest.approx(power, abs=1e-12)


def test_only_the_upper_half_counts():
    values = [5.0 if n < 512 else 1e-3 * n**2 for n in LENGTHS]  # 512 is the fourth of seven
    assert growth_exponent(LENGTHS, values) == pytest.approx(2.0, abs=1e-12)
    assert growth_exponent(LENGTHS[:4], values[:4]) != pytest.approx(2.0, abs=0.5)


def test_the_order_of_lengths_does_not_matter():
    values = [n**1.5 for n in LENGTHS]
    assert growth_exponent(LENGTHS[::-1], values[::-1]) == pytest.approx(1.5)


def test_too_little_is_no_exponent():
    assert growth_exponent([], []) is None
    assert growth_exponent([512], [1.0]) is None
    assert growth_exponent([512, 1024], [1.0, 0.0]) is None


def test_forecast():
    assert forecast({}, 1024) is None
    assert forecast({256: 2.0}, 1024) == (8.0, 1.0)  # one value: at least linear
    value, exponent = forecast({n: 1e-6 * n**2 for n in LENGTHS}, 8192)
    assert value == pytest.approx(1e-6 * 8192**2)
    assert exponent == pytest.approx(2.0)
    value, exponent = forecast({512: 4.0, 1024: 2.0}, 4096)  # noise does not make it vanish
    assert (value, exponent) == (2.0, 0.0)
