import dataclasses

import numpy as np
import pytest

from primal_attention.tasks.images import ImageSet
from primal_attention.tasks.images.sets import statistics


def test_a_subset_shares_the_pixels_and_keeps_the_order(make_images):
    whole = make_images()
    part = whole.subset([4, 1, 1]).subset([0, 2])
    assert part.images is whole.images
    assert part.rows.tolist() == [4, 1]
    assert part.labels.tolist() == whole.labels[[4, 1]].tolist()


def test_the_fingerprint_is_that_of_the_content(make_images):
    s = make_images()
    copied = ImageSet("other name", s.images[::-1].copy(), s.labels, s.classes, s.rows[::-1].copy())
    assert copied.fingerprint() == s.fingerprint()

    other = s.images.copy()
    other[3, 2, 1, 0] ^= 1
    for change in (
        {"images": other},
        {"labels": (s.labels + 1) % 3},
        {"classes": ("a", "b", "x")},
        {"rows": s.rows[::-1].copy()},
        {"checksum": "stored"},
    ):
        assert dataclasses.replace(s, **change).fingerprint() != s.fingerprint()


def test_statistics_are_those_of_the_cases_alone(make_images):
    s = make_images(12).subset([1, 5, 6])
    found = statistics(s)
    pixels = s.images[[1, 5, 6]].reshape(-1, 3).astype(np.float64)
    np.testing.assert_allclose(found.mean, pixels.mean(0), rtol=1e-12)
    np.testing.assert_allclose(found.deviation, pixels.std(0), rtol=1e-12)


def test_a_constant_channel_has_deviation_one(make_images):
    s = make_images()
    s.images[..., 1] = 77
    found = statistics(s)
    assert found.mean[1] == pytest.approx(77.0)
    assert found.deviation[1] == 1.0


def test_large_sets_are_sampled_evenly(make_images, monkeypatch):
    from primal_attention.tasks.images import sets

    monkeypatch.setattr(sets, "_SAMPLE", 4)
    s = make_images(10)
    assert statistics(s) == statistics(s.subset([0, 3, 6, 9]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"images": np.zeros((7, 8, 9, 3), np.uint8)},
            r"images \(7, 8, 9, 3\); expected",
        ),
        ({"images": np.zeros((7, 8, 8, 3))}, "images of float64; expected uint8"),
        ({"labels": np.zeros(6, np.int64)}, "6 labels for 7 images"),
        ({"labels": np.full(7, 3)}, "labels from 3 to 3; expected -1"),
        ({"labels": np.zeros(0, np.int64)}, "no images; expected at least one"),
    ],
)
def test_a_set_that_cannot_be_is_refused(make_images, change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(make_images(), **change)
