"""Plans with figures, and what a budget or a quality chooses."""

import copy

import pytest
import torch

import primal_attention as pa
from primal_attention.convert.measuring import _first, _within_budget, _within_quality
from primal_attention.convert.planning import Measured

from ..adapters.architectures import ARCHITECTURES

pytest.importorskip("transformers")


def figures(**agreements):
    return {name: Measured(3.0, 0.1, 0.2, a, 1 - a, 100) for name, a in agreements.items()}


def test_the_cheapest_are_chosen():
    found = figures(a=0.90, b=0.99, c=0.95) | {"d": Measured(1.0, 0.0, 0.0, 1.0, 0.0, 0)}
    assert _within_budget(found, 400, 1.3) == {"b"}
    assert _within_budget(found, 400, 2.0) == {"b", "c"}
    assert _within_quality(found, 0.935) == {"b", "c"}
    assert _within_quality(found, 0.985) == {"b"}
    assert _first(found, 2) == {"b", "c"}
    with pytest.raises(ValueError, match="count is 4; expected an integer from 1 to 3"):
        _first(found, 4)
    with pytest.raises(ValueError, match=r"save a factor of 4.00; expected a budget .* not 5x"):
        _within_budget(found, 400, 5.0)
    with pytest.raises(ValueError, match=r"quality 0\.995; the cheapest leaves 0\.9900"):
        _within_quality(found, 0.995)


def test_a_measured_plan():
    torch.manual_seed(0)
    model, batch = ARCHITECTURES["bert"]()
    before = copy.deepcopy(model.state_dict())
    planned = pa.plan(model, batches=[batch], budget=1.2, length=4096, rank=4)
    assert len(planned.changes) == 1
    assert all(torch.equal(t, before[n]) for n, t in model.state_dict().items())
    for found in planned.measured.values():
        assert 1.0 <= found.rank <= 7.0
        assert 0.0 <= found.tail <= 1.0
        assert 0.0 <= found.agreement <= 1.0
        assert found.saved > 0
    assert "effective rank" in str(planned)
    best = min(planned.measured, key=lambda name: planned.measured[name].divergence)
    assert planned.changes[0].name == best
    pa.convert_(model, planned)


def test_refusals():
    model, batch = ARCHITECTURES["bert"]()
    with pytest.raises(ValueError, match="without batches; expected some"):
        pa.plan(model, budget="2x")
    with pytest.raises(ValueError, match=r"are 2x, 0\.9 and None; expected one of them"):
        pa.plan(model, batches=[batch], budget="2x", quality=0.9)
    with pytest.raises(ValueError, match="budget is 'fast'; expected a factor above 1"):
        pa.plan(model, batches=[batch], budget="fast")
