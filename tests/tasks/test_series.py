"""Sets of series in memory: statistics, batches, splits."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from primal_attention.tasks import Normaliser, SeriesData, SeriesSet, stratified_split

seeds = st.integers(0, 2**32 - 1)


# -- the set ---------------------------------------------------------------------------------------


def test_subset_keeps_the_order_asked_for(make_set):
    s = make_set()
    part = s.subset([4, 0, 4])
    assert len(part) == 3
    assert part.series[0] is s.series[4]
    assert part.series[1] is s.series[0]
    assert part.labels.tolist() == s.labels[[4, 0, 4]].tolist()
    assert part.lengths.tolist() == [len(s.series[i]) for i in (4, 0, 4)]
    assert (part.name, part.classes, part.channels) == (s.name, s.classes, s.channels)


@pytest.mark.parametrize(
    ("series", "labels", "message"),
    [
        ([], [], r"nine has no cases; expected at least one"),
        ([(3,)], [0], r"case 0 of nine has shape \(3,\); expected \(length, channels\)"),
        ([(3, 2), (3, 1)], [0, 0], r"case 1 of nine has shape \(3, 1\); expected .* first case"),
        ([(0, 2)], [0], r"case 0 of nine has shape \(0, 2\); .* at least one position"),
        ([(1, 0)], [0], r"case 0 of nine has shape \(1, 0\)"),
        ([(3, 2)], [0, 0], r"nine has labels of shape \(2,\); expected \(1,\)"),
        ([(3, 2)], [2], r"nine has labels from 2 to 2; expected -1 \(unknown\) to 1"),
        ([(3, 2)], [-2], r"nine has labels from -2 to -2"),
    ],
)
def test_malformed_sets(series, labels, message):
    with pytest.raises(ValueError, match=message):
        SeriesSet("nine", [np.zeros(s) for s in series], np.array(labels), ("a", "b"))


# -- normalisation ---------------------------------------------------------------------------------


def test_normaliser_has_the_statistics_of_the_training_set_alone(make_set):
    train = make_set(9, missing=0.2)
    test = make_set(5, seed=1)
    for s in test.series:
        s += 100.0
    found = Normaliser.fit(train)
    rows = np.concatenate(train.series)
    np.testing.assert_allclose(found.mean, np.nanmean(rows, 0), rtol=1e-12)
    np.testing.assert_allclose(found.deviation, np.nanstd(rows, 0), rtol=1e-12)
    before = test.series[0].copy()
    for s in (train, test):
        for x, y in zip(s.series, found.apply(s).series, strict=True):
            np.testing.assert_allclose(y, (x - found.mean) / found.deviation, rtol=1e-12)
    assert np.array_equal(test.series[0], before), "the set itself stays as it is"
    assert all((s > 50.0).all() for s in found.apply(test).series), "not its own mean"


@given(seeds, st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_normalised_training_set_has_mean_0_and_deviation_1(seed, shift, scale):
    rng = np.random.default_rng(seed)
    series = [shift + scale * rng.normal(size=(n, 2)) for n in rng.integers(2, 9, 4)]
    s = SeriesSet("s", series, np.zeros(4, dtype=np.int64), ("a",))
    rows = np.concatenate(Normaliser.fit(s).apply(s).series)
    tolerance = 1e-12 * (1 + abs(shift) / scale)
    np.testing.assert_allclose(rows.mean(0), 0.0, atol=10 * tolerance)
    np.testing.assert_allclose(rows.std(0), 1.0, atol=1e-3 if tolerance > 1e-5 else 1e-6)


def test_channels_without_spread():
    x = np.full((3, 4), 0.1)
    x[:, 1] = np.nan  # no value at all
    x[1:, 2] = np.nan  # one value
    x[:, 3] = [0.0, 5e-324, 0.0]  # a deviation that is lost in rounding
    s = SeriesSet("s", [x], np.array([0]), ("a",))
    found = Normaliser.fit(s)
    assert found.deviation.tolist() == [1.0] * 4
    other = SeriesSet("t", [x + 1.0], np.array([0]), ("a",))
    y = found.apply(other).series[0]
    np.testing.assert_allclose(y[:, 0], 1.0, rtol=1e-12)
    assert np.isnan(y[:, 1]).all()
    assert np.array_equal(np.isnan(y), np.isnan(x)), "missing stays missing"


@pytest.mark.parametrize("value", [1e160, -1e308, np.inf])
def test_a_deviation_that_is_not_finite_is_refused(make_set, value):
    s = make_set(6, 3)
    for x in s.series:
        x[:, 1] *= value
    with pytest.raises(ValueError, match=r"channel 1 of random 0 has values up to .* expected"):
        Normaliser.fit(s)


def test_normaliser_through_json(make_set):
    found = Normaliser.fit(make_set(9))
    again = Normaliser.from_dict(json.loads(json.dumps(found.to_dict())))
    assert found.mean.tobytes() == again.mean.tobytes()
    assert found.deviation.tobytes() == again.deviation.tobytes()


def test_normaliser_of_other_channels(make_set):
    with pytest.raises(ValueError, match="random 0 has 2 channels; expected 3"):
        Normaliser.fit(make_set(channels=3)).apply(make_set(channels=2))


# -- batches ---------------------------------------------------------------------------------------


@given(seeds, st.integers(1, 4), st.none() | st.integers(1, 8), st.data())
def test_batches_are_padded_to_their_longest(make_set, seed, channels, max_length, data):
    s = make_set(6, channels, seed=seed, missing=0.2)
    batches = SeriesData(s, max_length=max_length)
    assert len(batches) == 6
    assert batches.channels == channels
    indices = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=8))
    batch = batches.__getitems__(indices)
    series = [np.nan_to_num(s.series[i][:max_length], nan=0.0) for i in indices]
    longest = max(map(len, series))
    assert batches.longest == min(s.lengths.max(), max_length or 99)
    assert batch.inputs.shape == (len(indices), longest, channels)
    assert batch.padding.shape == (len(indices), longest)
    assert (batch.inputs.dtype, batch.padding.dtype) == (torch.float32, torch.bool)
    for x, inputs, padding in zip(series, batch.inputs, batch.padding, strict=True):
        assert np.array_equal(inputs[: len(x)].numpy(), x.astype(np.float32))
        assert not inputs[len(x) :].any()
        assert padding.tolist() == [False] * len(x) + [True] * (longest - len(x))
    assert batch.targets.dtype == torch.int64
    assert batch.targets.tolist() == s.labels[indices].tolist()


def test_a_batch_is_a_copy(make_set):
    data = SeriesData(make_set())
    first = data.__getitems__([0, 1])
    first.inputs.fill_(9.0)
    assert (data.__getitems__([0, 1]).inputs != 9.0).all()


def test_batches_through_a_data_loader(make_set):
    s = make_set(7)
    loader = DataLoader(SeriesData(s), batch_size=3, collate_fn=lambda batch: batch)
    batches = list(loader)
    assert [len(b.targets) for b in batches] == [3, 3, 1]
    assert torch.cat([b.targets for b in batches]).tolist() == s.labels.tolist()


@pytest.mark.parametrize("value", [1e39, -1e39, np.inf])
def test_values_beyond_float32(make_set, value):
    s = make_set()
    s.series[3][0, 0] = value
    with pytest.raises(ValueError, match=r"random 0 has an infinite value; expected .* float32"):
        SeriesData(s)


def test_max_length_must_be_positive(make_set):
    with pytest.raises(ValueError, match="max_length is 0; expected an integer of at least 1"):
        SeriesData(make_set(), max_length=0)


# -- splits ----------------------------------------------------------------------------------------

fractions = st.floats(0.01, 0.99)
labels_with_a_pair = st.lists(st.integers(-1, 5), min_size=2, max_size=60).filter(
    lambda labels: len(set(labels)) < len(labels)
)


@given(labels_with_a_pair, fractions, seeds)
def test_split(labels, fraction, seed):
    labels = np.array(labels)
    kept, held_out = stratified_split(labels, fraction, seed)
    assert np.array_equal(np.sort(np.concatenate([kept, held_out])), np.arange(len(labels)))
    assert (np.diff(kept) > 0).all()
    assert (np.diff(held_out) > 0).all()
    classes, sizes = np.unique(labels, return_counts=True)
    assert set(labels[kept]) == set(classes), "every class keeps a case"
    spare = (sizes - 1).sum()
    assert len(held_out) == min(max(round(fraction * len(labels)), 1), spare)
    for again, before in zip(
        stratified_split(labels, fraction, seed), (kept, held_out), strict=True
    ):
        assert np.array_equal(again, before)


@given(st.lists(st.integers(10, 40), min_size=1, max_size=6), st.floats(0.1, 0.8), seeds)
def test_every_class_gives_its_share(sizes, fraction, seed):
    """Where every class has cases enough, its share is off by less than one case."""
    labels = np.repeat(np.arange(len(sizes)), sizes)
    _, held_out = stratified_split(labels, fraction, seed)
    given_up = np.bincount(labels[held_out], minlength=len(sizes))
    assert (np.abs(given_up - fraction * np.array(sizes)) < 1.0).all()


def test_balanced_classes_give_the_same():
    labels = np.repeat(np.arange(9), 30)
    kept, held_out = stratified_split(labels, 0.2, 0)
    assert np.bincount(labels[held_out]).tolist() == [6] * 9
    assert np.bincount(labels[kept]).tolist() == [24] * 9


def test_largest_remainder():
    labels = np.repeat([0, 1, 2], [14, 13, 3])  # shares 2.8, 2.6, 0.6: six are wanted
    _, held_out = stratified_split(labels, 0.2, 0)
    assert np.bincount(labels[held_out], minlength=3).tolist() == [3, 3, 0]


def test_the_seed_decides():
    labels = np.repeat(np.arange(3), 20)
    splits = {tuple(stratified_split(labels, 0.3, seed)[1]) for seed in range(20)}
    assert len(splits) == 20


def test_every_case_is_held_out_sometimes():
    labels = np.repeat(np.arange(2), 5)
    seen = {i for seed in range(40) for i in stratified_split(labels, 0.2, seed)[1]}
    assert seen == set(range(10))


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, float("nan")])
def test_fraction_out_of_range(fraction):
    with pytest.raises(ValueError, match=f"fraction is {fraction}; expected a number between"):
        stratified_split(np.zeros(4), fraction, 0)


@pytest.mark.parametrize("labels", [[0], [0, 1, 2]])
def test_nothing_to_hold_out(labels):
    with pytest.raises(ValueError, match=f"no class has two cases among {len(labels)}"):
        stratified_split(np.array(labels), 0.5, 0)
