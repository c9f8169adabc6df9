"""Seconds from FLOPs and bytes, and where curves of times cross."""

import pytest

from primal_attention.analysis import (
    Machine,
    crossing,
    fitted,
    layer_cost,
    measured_crossing,
    predicted_crossing,
)

SIZES = {"width": 512, "heads": 8, "rank": 32}


def test_products_and_traffic_take_turns():
    cost = layer_cost("primal", 1000, **SIZES)
    machine = Machine(flops=2e9, bandwidth=1e9)
    assert machine.seconds(cost) == pytest.approx(cost.flops / 2e9 + cost.bytes / 1e9)


def test_a_machine_without_traffic_crosses_where_the_flops_do():
    machine = Machine(flops=1e9, bandwidth=1e30)
    for name in ("primal", "performer"):
        assert predicted_crossing(name, machine, **SIZES) == crossing(name, **SIZES)
    assert predicted_crossing("yoso", machine, **SIZES) is None


def test_crossing_of_measured_curves():
    lengths = [100, 200, 400]
    # in logarithms half-way between 100 and 200
    found = measured_crossing(lengths, [2.0, 2.0, 2.0], [1.0, 4.0, 16.0])
    assert found == pytest.approx((100 * 2**0.5, 100))
    assert measured_crossing(lengths, [1.0] * 3, [2.0] * 3) == (100, 0)
    assert measured_crossing(lengths, [2.0] * 3, [1.0] * 3) is None
    # the last one to be slower counts, and what was not run does not
    assert measured_crossing(lengths, [1.0, 3.0, 1.0], [2.0] * 3)[1] == 200
    assert measured_crossing(lengths, [3.0, 1.0, None], [2.0, 2.0, None])[1] == 100
    assert measured_crossing(lengths, [None] * 3, [1.0] * 3) is None


def test_the_fit_finds_what_times_were_made_of():
    predicted = [1.0, 5.0, 40.0]
    assert fitted(predicted, [2.0 + 1.5 * p for p in predicted]) == pytest.approx((2.0, 1.5))
    # a call takes no negative time, and one point gives the factor alone
    assert fitted([2.0, 4.0], [1.0, 3.0])[0] == 0.0
    assert fitted([2.0], [3.0]) == pytest.approx((0.0, 1.5))
    assert fitted([2.0, 2.0], [3.0, 3.0]) == pytest.approx((0.0, 1.5))
    with pytest.raises(ValueError, match="2 predicted and 0 measured times"):
        fitted([1.0, 2.0], [])


def test_wrong_speeds():
    with pytest.raises(ValueError, match="bandwidth is 0; expected more than 0"):
        Machine(flops=1.0, bandwidth=0)
