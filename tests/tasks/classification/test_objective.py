"""What a run reads, and what it learns statistics from."""

import numpy as np
import pytest
import torch

from primal_attention.tasks import SeriesSet, get_task
from primal_attention.tasks.classification.objective import Classification
from primal_attention.train import RunError


def load_data(settings):
    return Classification.load(get_task(settings.task), settings)


def test_holdout_is_a_split_of_the_training_set(config, task):
    data = load_data(config())
    train = task.load(splits=("train",))["train"]
    assert data.split == "validation"
    assert len(data.examples) + len(data.selection) == len(train)
    assert len(data.selection) == round(0.2 * len(train))
    assert list(data.fingerprints) == ["train"]
    other = load_data(config(seed=1))
    assert not torch.equal(other.selection.lengths, data.selection.lengths)


@pytest.mark.parametrize("protocol", ["holdout", "paper"])
def test_statistics_come_from_the_training_part(config, protocol):
    data = load_data(config(protocol=protocol))
    rows = data.examples.rows[:-1].double()
    assert torch.allclose(rows.mean(0), torch.zeros(12, dtype=torch.float64), atol=1e-5)
    assert torch.allclose(rows.std(0, correction=0), torch.ones(12).double(), atol=1e-5)
    others = data.selection.rows[:-1].double().mean(0)
    assert others.abs().max() > 0.01
    assert data.examples.longest >= data.selection.longest
    assert data.test().longest <= data.examples.longest


def test_without_normalisation(config, task):
    data = load_data(config(protocol="paper", normalise="none"))
    train = task.load()["train"]
    expected = torch.from_numpy(np.concatenate(train.series)).float()
    assert torch.equal(data.examples.rows[:-1], expected)


def test_fingerprint():
    def make(value=1.0, label=0, classes=("a", "b"), length=2):
        series = [np.full((length, 2), value), np.zeros((4 - length, 2))]
        return SeriesSet("s", series, np.array([label, 1]), classes)

    first = make().fingerprint()
    assert make().fingerprint() == first
    changed = [make(value=1.5), make(label=1), make(classes=("a", "c")), make(length=1)]
    assert len({first, *(s.fingerprint() for s in changed)}) == 5


def test_cases_without_labels_are_refused(config, task, monkeypatch):
    def load(self, data_dir=None, *, splits):
        return {"train": SeriesSet("S TRAIN", [np.ones((2, 1))] * 4, np.array([0, 0, 1, -1]), "ab")}

    monkeypatch.setattr(type(task), "load", load)
    with pytest.raises(RunError, match="S TRAIN has 1 cases without a label"):
        load_data(config())


def test_longer_series_are_cut(config):
    data = load_data(config(protocol="paper", max_length=10))
    assert data.examples.longest == 10
    assert data.examples.cut > 0
    assert data.selection.cut == int(
        (load_data(config(protocol="paper")).selection.lengths > 10).sum()
    )


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "none"])
def test_a_greatest_length_above_the_longest_for_training(positions, config):
    """Longer series of the test set are then not cut, and the model takes them."""
    model = load_data(config(max_length=40, positions=positions)).model()
    longer = torch.zeros(1, 40, 12)
    assert model(longer, torch.zeros(1, 40, dtype=torch.bool)).shape == (1, 9)


def test_a_validation_split_of_the_benchmark_is_used(config, task, monkeypatch):
    def load(self, data_dir=None, *, splits):
        return {
            s: SeriesSet(s, [np.full((2, 1), len(s))] * 2, np.array([0, 1]), "ab") for s in splits
        }

    monkeypatch.setattr(type(task), "load", load)
    monkeypatch.setitem(task.__dict__, "splits", ("train", "validation", "test"))
    data = load_data(config())
    assert (len(data.examples), data.split, data.selection.name) == (2, "validation", "validation")
    assert list(data.fingerprints) == ["train", "validation"]


def test_epochs_are_ordered_by_accuracy_then_by_loss(config):
    rank = load_data(config()).rank
    best = rank({"accuracy": 0.5, "loss": 2.0})
    assert rank({"accuracy": 0.6, "loss": 3.0}) > best
    assert rank({"accuracy": 0.5, "loss": 1.9}) > best
    assert not rank({"accuracy": 0.5, "loss": 2.0}) > best
    assert not rank({"accuracy": 0.4, "loss": 1.0}) > best


def test_the_paper_chooses_among_the_first_the_even_and_the_last_epoch(config):
    data = load_data(config(epochs=7, selection_epochs="paper"))
    assert [epoch for epoch in range(1, 8) if data.looks_after(epoch)] == [1, 2, 4, 6, 7]
    every = load_data(config(epochs=7))
    assert all(map(every.looks_after, range(1, 8)))
