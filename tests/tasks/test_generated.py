"""Every answer of a generated task follows from its sequence, and from nothing less."""

import pytest
import torch

from primal_attention.tasks.generated import Counting, Lookup, make_generated


def draw(task, batch=5, length=60, seed=0):
    return task.draw(batch, length, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("length", [12, 60])
def test_lookup_asks_for_the_value_of_a_key(length):
    task = Lookup()
    tokens, places, answers = draw(task, length=length)
    assert tokens.shape == (5, length, 3)
    assert places.shape == answers.shape == (5, 4)
    for sequence, at, right in zip(tokens, places, answers, strict=True):
        pairs = {int(k): int(v) for kind, k, v in sequence if kind == 1}
        assert len(pairs) == 8 == int((sequence[:, 0] == 1).sum())
        assert sorted(at.tolist()) == (sequence[:, 0] == 2).nonzero().flatten().tolist()
        assert [pairs[int(sequence[i, 1])] for i in at] == right.tolist()
        assert (sequence[at, 2] == task.values).all()
    assert all(int(tokens[..., i].max()) < n for i, n in enumerate(task.fields))
    assert int(answers.max()) < task.classes


@pytest.mark.parametrize("length", [8, 60, 1000])
def test_counting_counts(length):
    task = Counting()
    tokens, places, answers = draw(task, length=length)
    assert tokens.shape == (5, length, 1)
    assert places.shape == answers.shape
    for sequence, at, right in zip(tokens[..., 0], places, answers, strict=True):
        counts = torch.bincount(sequence, minlength=task.tokens + 1)
        assert torch.equal(counts[sequence[at]] - 1, right)
        assert (sequence[at] < task.tokens).all()
    assert int(answers.max()) < task.classes


def test_counting_has_all_answers():
    _, places, answers = draw(Counting(), batch=50, length=400)
    shares = torch.bincount(answers.flatten(), minlength=8) / answers.numel()
    expected = torch.arange(1, 9) / 36  # a group of size n has n positions
    assert (shares - expected).abs().max() < 0.02
    assert places.shape[1] > 150


def test_a_seed_is_a_batch():
    for task in (Lookup(), Counting()):
        one, same, other = draw(task), draw(task), draw(task, seed=1)
        assert torch.equal(one.tokens, same.tokens)
        assert torch.equal(one.answers, same.answers)
        assert not torch.equal(one.tokens, other.tokens)


def test_bad_tasks():
    with pytest.raises(ValueError, match=r"'lokup' \(did you mean 'lookup'\?\)"):
        make_generated("lokup")
    with pytest.raises(ValueError, match="pairs is 40; expected 1 to 32, the number of keys"):
        make_generated("lookup", pairs=40)
    with pytest.raises(ValueError, match="length is 11; expected at least 12"):
        draw(Lookup(), length=11)
    with pytest.raises(ValueError, match="batch is 0; expected at least 1"):
        draw(Lookup(), batch=0)
