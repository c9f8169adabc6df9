"""Explanations are minimal and true, whatever the order; the order only saves calls."""

from itertools import combinations

import numpy as np
import pytest
import torch
from torch import nn

import primal_attention as pa
from primal_attention.analysis.cases import case_of, word_units
from primal_attention.analysis.explanation import search
from primal_attention.models import SequenceClassifier

ORDERS = ("graph", "attention", "gradient", "random", "greedy")


@pytest.fixture(scope="module")
def model():
    """Class 1 where one of the tokens 1 and 2 is there: a sum, but read through attention."""
    torch.manual_seed(0)
    made = SequenceClassifier(
        classes=2, vocabulary=12, max_length=16, attention=("softmax", "primal"), width=16,
        heads=2, feedforward=16, dropout=0.0,
    )  # fmt: skip
    steps = torch.optim.Adam(made.parameters(), lr=1e-2)
    for _ in range(60):
        x = torch.randint(3, 12, (32, 10))
        y = torch.rand(32) < 0.5
        for row in y.nonzero()[:, 0].tolist():
            places = torch.randperm(10)[:2]
            x[row, places] = torch.tensor([1, 2])
            if row % 3:
                x[row, places[row % 2]] = 5
        steps.zero_grad()
        nn.functional.cross_entropy(made(x), y.long()).backward()
        steps.step()
    return made.eval()


def planted(seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(3, 12, (1, 10), generator=generator)
    places = torch.randperm(10, generator=generator)[:2]
    x[0, places] = torch.tensor([1, 2])
    return x, tuple(sorted(places.tolist()))


def smallest(model, x):
    """By brute force."""
    case = case_of(model, x)
    before = case.ask(np.zeros((1, 10), dtype=bool)).argmax()
    for size in (1, 2, 3):
        sets = list(combinations(range(10), size))
        masks = np.array([[i in one for i in range(10)] for one in sets])
        changed = case.ask(masks).argmax(1) != before
        if changed.any():
            return [one for one, c in zip(sets, changed, strict=True) if c]
    return []


@pytest.mark.parametrize("order", ORDERS)
def test_what_is_found_is_minimal_and_true(model, order):
    hits = 0
    for seed in range(6):
        x, pair = planted(seed)
        found = pa.explain(model, x, order=order, every=True, budget=1000)
        expected = smallest(model, x)
        assert sorted(one.units for one in found.removals) == expected
        assert found.smallest == bool(expected)
        for one in found.removals:
            kept = [i for i in range(10) if i not in one.positions]
            logits = model(x[:, kept]).detach()  # a removed position is absent, not blank
            assert int(logits.argmax()) == one.prediction != found.prediction
            assert float(logits.softmax(-1)[0, found.prediction]) == pytest.approx(
                one.probability, abs=1e-5
            )
        hits += found.removals[0].positions == pair
    assert hits >= 5


def test_the_first_call_that_succeeds_is_counted(model):
    x, _ = planted(3)
    case, told = case_of(model, x), []
    cost = np.arange(10.0)
    one = search(case, cost, "random", 3, 500, 7, tell=lambda *at: told.append(at))
    slow = search(case, cost, "random", 3, 500, 1)
    assert (one.calls, one.removals[0].units) == (slow.calls, slow.removals[0].units)
    assert slow.evaluations == slow.calls <= one.evaluations
    assert told[-1] == (one.evaluations, 500)


def test_the_budget_holds(model):
    x, _ = planted(3)
    found = pa.explain(model, x, budget=4, order="random")
    assert found.evaluations == found.calls == 4
    assert (found.removals, found.size, found.smallest) == ((), None, False)
    assert found.to_dict()["removals"] == []


def test_units_of_several_positions_and_padding(model):
    x, _ = planted(1)
    padded = torch.cat([x, torch.full((1, 3), 7)], 1)
    padding = torch.arange(13)[None] >= 10
    found = pa.explain(model, (padded, padding), units=[range(5), range(5, 10), [12]])
    assert found.units == (tuple(range(5)), tuple(range(5, 10)))
    alone = pa.explain(model, x, units=2)
    assert [one.units for one in found.removals] == [one.units for one in alone.removals]
    single = pa.explain(model, (padded, padding))
    assert single.removals[0].units == pa.explain(model, x).removals[0].units


def test_images_and_hugging_face():
    class Grey(nn.Module):
        """Light in one corner decides."""

        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(4, 1, batch_first=True)

        def forward(self, image):
            rows = image.flatten(2).mT.repeat(1, 1, 4)
            out, _ = self.attention(rows, rows, rows, need_weights=False)
            light = image[:, 0, :2, :2].mean((1, 2)) + 0.0 * out.sum((1, 2))
            return torch.stack([light, 0.5 * torch.ones_like(light)], 1)

    image = torch.zeros(1, 1, 4, 4)
    image[..., :2, :2] = 1.0
    units = [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]
    for order in ORDERS:
        found = pa.explain(Grey(), image, units=units, order=order)
        assert found.removals[0].units == (0,)
        assert not found.exact


def test_words_are_units():
    text = b"It's bad, <br />not good"
    words = [text[unit[0] : unit[-1] + 1] for unit in word_units(text)]
    assert words == [b"It's", b"bad", b"br", b"not", b"good"]


def test_what_is_refused(model):
    x, _ = planted(0)
    for wrong, message in (
        ({"order": "alphabet"}, "order is 'alphabet'"), ({"budget": 0}, "budget is 0"),
        ({"units": 99}, "units is 99"), ({"units": [[]]}, "no unit"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            pa.explain(model, x, **wrong)
    with pytest.raises(ValueError, match="2 cases; expected one"):
        pa.explain(model, x.expand(2, -1))
    with pytest.raises(ValueError, match="expected input_ids"):
        pa.explain(model, {"pixel_values": x})


def test_what_comes_next_is_explained_by_a_shorter_history():
    """A language in which the next token is the one before the last: only that one counts."""
    from primal_attention.models.language import LanguageModel

    class Before(LanguageModel):
        def forward(self, tokens):
            rows = super().forward(tokens)
            earlier = torch.cat([tokens[:, :1], tokens[:, :-1]], 1)
            return 0.01 * rows + 5 * nn.functional.one_hot(earlier, 9)

    torch.manual_seed(0)
    model = Before(9, attention=("primal", "softmax"), width=16, heads=2).eval()
    tokens = torch.tensor([[1, 2, 3, 4, 5, 6]])
    for order in ORDERS:
        found = pa.explain(model, tokens, order=order, every=True)
        assert found.prediction == 5
        # without the last the one before becomes it; without any earlier one nothing changes
        assert [one.units for one in found.removals] in ([(4,), (5,)], [(5,), (4,)])
        assert {one.prediction for one in found.removals} == {4}
    short = pa.explain(model, tokens[:, :2], most=3, order="random", every=True)
    assert short.evaluations == 2  # something is always left
    with pytest.raises(ValueError, match="N of at least 2"):
        pa.explain(model, tokens[:, :1])
