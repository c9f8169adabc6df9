"""What is asked of a run is what its evaluation asks."""

import numpy as np
import pytest
import torch

pytest.importorskip("lightning_fabric")

from lightning_fabric import Fabric

from primal_attention.models.events import EventModel
from primal_attention.models.language import LanguageModel
from primal_attention.tasks.events.evaluate import evaluate
from primal_attention.tasks.events.sets import EventData, EventSet
from primal_attention.tasks.language.objective import judged
from primal_attention.tasks.language.text import TextData
from primal_attention.train.asked import (
    AskedCases,
    AskedEvents,
    AskedTokens,
    batches_together,
    spread,
)

FABRIC = Fabric(accelerator="cpu", devices=1)


def answers(asked, model):
    with torch.inference_mode():
        parts = [
            (asked.logits(model, b), asked.labels(b), asked.groups(b), asked.chances(model, b))
            for b in asked.batches()
        ]
    logits, labels, groups, chances = zip(*parts, strict=True)
    told = None if chances[0] is None else np.concatenate(chances)
    return torch.cat(logits), torch.cat(labels), np.concatenate(groups), told


def test_events():
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    lengths = (9, 4, 2, 7)
    times = tuple(np.cumsum(rng.exponential(size=n)) for n in lengths)
    data = EventData(
        EventSet("a", times, tuple(rng.integers(3, size=n) for n in lengths), ("x", "y", "z"))
    )
    model = EventModel(3, width=8, heads=2, dropout=0.0).eval()
    asked = AskedEvents(data, "test")
    logits, labels, groups, chances = answers(asked, model)
    expected = evaluate(FABRIC, model, data)
    assert len(labels) == data.data.events == 18
    assert (logits.argmax(-1) == labels).double().mean() == pytest.approx(expected.accuracy)
    loss = torch.nn.functional.cross_entropy(logits, labels)
    assert float(loss) == pytest.approx(expected.loss, rel=1e-5)
    assert np.bincount(groups).tolist() == [8, 3, 1, 6]
    shares = np.histogram(chances, bins=20, range=(0, 1))[0] / 18
    assert shares.tolist() == pytest.approx(expected.pit)
    (batch,) = asked.batches()
    turned = asked.logits(model, batch, strange=True)
    assert turned.shape == logits.shape
    assert not torch.allclose(turned, logits)
    known = EventModel(3, width=8, heads=2, known_time=True).eval()
    assert answers(asked, known)[3] is None


def test_tokens():
    torch.manual_seed(0)
    tokens = np.random.default_rng(0).integers(5, size=30)
    data = TextData(tokens, 8)
    model = LanguageModel(5, width=8, heads=2, dropout=0.0).eval()
    logits, labels, groups, chances = answers(AskedTokens(data, "test", 5), model)
    expected = judged(FABRIC, model, data, 5)
    assert labels.tolist() == tokens[1:].tolist()
    assert (logits.argmax(-1) == labels).double().mean() == pytest.approx(expected.accuracy)
    assert float(torch.nn.functional.cross_entropy(logits, labels)) == pytest.approx(expected.loss)
    assert np.bincount(groups).tolist() == [8, 8, 8, 5]
    assert chances is None
    assert len(answers(AskedTokens(data, "test", 5, most=16), model)[1]) == 13  # first and last


def test_whole_sequences_are_spread_over_all():
    assert spread([3, 3, 3], 9) == [0, 1, 2]
    assert spread([10] * 11, 30) == [0, 5, 10]
    assert spread([10] * 11, 1) == [0]
    with pytest.raises(ValueError, match="is 0; expected at least 1"):
        spread([1], 0)


class Cases:
    """Cases with a number each, cut to a greatest length."""

    def __init__(self, longest):
        self.lengths = torch.tensor([9, 12, 10, 12, 3]).clamp(max=longest)

    def __len__(self):
        return 5

    def __getitems__(self, indices):
        return list(indices)


def test_runs_that_cut_their_cases_are_asked_the_same_ones():
    """The order by length is that of one of them."""
    asked = [AskedCases(Cases(longest), "test") for longest in (12, 9)]
    assert asked[0].places() != asked[1].places()
    together = [*batches_together(asked)]
    assert all(first == second for first, second in together)
    assert sorted(case for first, _ in together for case in first) == [0, 1, 2, 3, 4]
