"""Plans with figures, and what a budget or a quality chooses."""

import copy
import itertools
import math
import random

import pytest
import torch

import primal_attention as pa
from primal_attention.convert.choosing import Choice, in_turn
from primal_attention.convert.planning import Measured, Together

from ..adapters.architectures import ARCHITECTURES

pytest.importorskip("transformers")


def figures(**agreements):
    return {name: Measured(3.0, 0.1, 0.2, a, 1 - a, 100) for name, a in agreements.items()}


class Model:
    """Losses of attentions, and of pairs that are worse together; what was asked of it."""

    def __init__(self, alone, pairs=()):
        self.alone, self.pairs, self.asked = alone, dict(pairs), []

    def __call__(self, names):
        self.asked.append("".join(names))
        loss = sum(1 - self.alone[name].agreement for name in names)
        loss += sum(more for pair, more in self.pairs.items() if set(pair) <= set(names))
        return Together(1 - loss, loss)


def test_the_cheapest_are_chosen():
    found = figures(a=0.90, b=0.99, c=0.95) | {"d": Measured(1.0, 0.0, 0.0, 1.0, 0.0, 0)}
    model = Model(found)
    assert list(Choice(budget=1.3)(found, 400, model)) == ["b"]
    assert list(Choice(budget="2x")(found, 400, model)) == ["b", "c"]
    assert list(Choice(quality=0.935)(found, 400, model)) == ["b", "c"]
    assert list(Choice(quality=0.985)(found, 400, model)) == ["b"]
    assert list(Choice(count=2)(found, 400, model)) == ["b", "c"]
    with pytest.raises(ValueError, match=r"quality 0\.995; the cheapest leaves 0\.9900"):
        Choice(quality=0.995)(found, 400, model)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"count": 5}, "count is 5; expected an integer from 1 to 4"),
        ({"count": True}, "count is True; expected an integer from 1 to 4"),
        ({"budget": 50}, r"save a factor of \d+\.\d\d; expected a budget .* not 50x"),
        ({"quality": "0.9"}, "quality is '0.9'; expected a share"),
        ({"count": 1, "length": 2}, "none of 4 attentions gets cheaper by a conversion"),
    ],
)
def test_what_cannot_be_chosen_is_said_before_anything_is_measured(asked, said, monkeypatch):
    monkeypatch.setattr("primal_attention.convert.measuring.Trial", None)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 24, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    with pytest.raises(ValueError, match=said):
        pa.plan(model, batches=[torch.randn(2, 7, 16)], rank=4, **asked)


def test_a_measurement_tells_how_far_it_is():
    layer = torch.nn.TransformerEncoderLayer(16, 2, 24, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    heard = []
    tell = lambda *said: heard.append(said)  # noqa: E731
    pa.plan(model, batches=[torch.randn(2, 7, 16)], count=2, rank=4, tell=tell)
    assert [done for done, _, _ in heard[:7]] == list(range(7))
    assert {parts for _, parts, _ in heard} == {6}
    assert "layers.2.self_attn alone: agreement" in heard[6][2]
    assert heard[-1][2].startswith("2 together, with layers.")


def test_what_is_worse_together_is_not_chosen_together():
    found = figures(a=0.99, b=0.98, c=0.96, d=0.90)
    model = Model(found, [("ab", 0.05)])
    order = list(in_turn(found, model))
    assert [name for name, _ in order] == ["a", "c", "b", "d"]
    assert [round(reached.agreement, 3) for _, reached in order] == [0.99, 0.95, 0.88, 0.78]
    assert "ad" not in model.asked  # it cannot lead: alone it is worse than c beside a


def test_the_order_is_the_greedy_one():
    """Trying only what leads finds what trying everything finds."""
    names = "abcdefg"
    draw = random.Random(0)
    for _ in range(20):
        found = figures(**{name: 1 - draw.random() / 20 for name in names})
        pairs = [(x + y, draw.random() / 20) for x, y in itertools.combinations(names, 2)]
        model, chosen = Model(found, pairs), []
        while len(chosen) < len(names):
            left = [name for name in names if name not in chosen]
            chosen.append(min(left, key=lambda name: model([*chosen, name]).divergence))
        assert [name for name, _ in in_turn(found, model)] == chosen


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
    (name,) = planned.together
    assert planned.together[name].agreement == planned.measured[name].agreement
    assert f"1: {planned.together[name].agreement:.4f}" in str(planned)
    best = min(planned.measured, key=lambda name: planned.measured[name].divergence)
    assert planned.changes[0].name == best
    pa.convert_(model, planned)


@pytest.mark.parametrize("attention", ["primal", "linear"])
@pytest.mark.parametrize("name", ["bert", "llama", "mistral", "t5", "torch"])
def test_what_is_saved_is_timed(name, attention):
    """Also where heads are grouped, rotated or made by the module itself."""
    if name == "torch":
        layer = torch.nn.TransformerEncoderLayer(16, 2, 24)  # positions come first
        model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        batch = torch.randn(3, 7, 16)
    else:
        model, batch = ARCHITECTURES[name]()
    options = {"rank": 4} if attention == "primal" else {"attention": attention}
    planned = pa.plan(model, "all", batches=[batch], length=256, **options)
    taken = {each.seconds for each in planned.measured.values()}
    assert all(0 < before < 10 and 0 < after < 10 for before, after in taken)
    before = sum(each.seconds.before for each in planned.measured.values())
    assert f"{1000 * before:.3g} -> " in str(planned).splitlines()[-2]


def test_what_would_take_too_long_is_not_timed():
    layer = torch.nn.TransformerEncoderLayer(16, 2, 24, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    planned = pa.plan(model, "all", batches=[torch.randn(2, 7, 16)], length=10**6, rank=4)
    assert all(math.isnan(each.seconds.before) for each in planned.measured.values())
    assert " ? " in str(planned).splitlines()[-2]


def test_layers_that_were_asked_for_are_measured_together():
    torch.manual_seed(0)
    model, batch = ARCHITECTURES["bert"]()
    planned = pa.plan(model, "all", batches=[batch], rank=4)
    names = [row.name for row in planned.changes]
    assert list(planned.together) == names
    first = planned.measured[names[0]]
    assert planned.together[names[0]] == (first.agreement, first.divergence)
    alone = {each.divergence for each in planned.measured.values()}
    assert planned.together[names[-1]].divergence not in alone


def test_refusals():
    model, batch = ARCHITECTURES["bert"]()
    with pytest.raises(ValueError, match="without batches; expected some"):
        pa.plan(model, budget="2x")
    with pytest.raises(ValueError, match=r"are 2x, 0\.9 and None; expected one of them"):
        pa.plan(model, batches=[batch], budget="2x", quality=0.9)
    with pytest.raises(ValueError, match="budget is 'fast'; expected a factor above 1"):
        pa.plan(model, batches=[batch], budget="fast")
