from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from primal_attention.tasks.images import ImageData, ImageReader, Look, data


def settings(**changes):
    plain = {"normalise": "channel", "max_length": None, "batching": "random"}
    return SimpleNamespace(**(plain | {"augment": "none", "mixup": 0.0} | changes))


def fit(train, **changes):
    return ImageReader.fit(train, settings(**changes), size=8, patch=2, flip=True)


def test_the_training_part_alone_is_standardised(make_images):
    train, other = make_images(20), make_images(20, seed=1)
    other.images[:] //= 4
    reader = fit(train)
    assert reader.shape == {"classes": 3, "size": 8, "patch": 2}

    seen = reader(train).__getitems__(range(20)).inputs
    assert seen.shape == (20, 3, 8, 8)
    assert seen.dtype == torch.float32
    torch.testing.assert_close(seen.mean((0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(seen.std((0, 2, 3), correction=0), torch.ones(3))

    mean, deviation = (np.array(values) for values in reader.look.statistics)
    expected = ((other.images[[3, 1]] - mean) / deviation).transpose(0, 3, 1, 2)
    found = reader(other).__getitems__([3, 1])
    np.testing.assert_allclose(found.inputs, expected, atol=1e-5)
    assert found.targets.tolist() == [0, 1]


def test_without_normalising_bytes_become_shares(make_images):
    s = make_images()
    seen = fit(s, normalise="none")(s).__getitems__([2]).inputs
    np.testing.assert_allclose(seen[0].permute(1, 2, 0), s.images[2] / 255, rtol=1e-6)


def test_padding_and_lengths_are_those_of_the_patches(make_images):
    s = make_images(5)
    examples = fit(s)(s)
    assert examples.lengths.tolist() == [16] * 5
    assert (len(examples), examples.cut, examples.classes) == (5, 0, ("a", "b", "c"))
    padding = examples.__getitems__([0, 4]).padding
    assert (padding.shape, padding.dtype) == ((2, 16), torch.bool)
    assert not padding.any()


def test_larger_images_are_cut_to_their_centre(make_images):
    s = make_images(3, side=12)
    seen = fit(s, normalise="none")(s).__getitems__([0, 1]).inputs
    np.testing.assert_allclose(seen.permute(0, 2, 3, 1), s.images[:2, 2:10, 2:10] / 255, rtol=1e-6)


def test_evaluation_is_not_augmented(make_images):
    s = make_images()
    plain = fit(s)(s, training=True).__getitems__([0, 1])
    for augment, mixup in (("light", 0.0), ("none", 0.8)):
        reader = fit(s, augment=augment, mixup=mixup)
        seen, changed = (reader(s, training=t).__getitems__([0, 1]) for t in (False, True))
        assert torch.equal(seen.inputs, plain.inputs)
        assert seen.targets.shape == (2,)
        assert not torch.equal(changed.inputs, plain.inputs)
        assert changed.targets.shape == ((2, 3) if mixup else (2,))


@pytest.mark.parametrize("side", [8, 12])
@pytest.mark.parametrize(("augment", "mixup"), [("light", 0.0), ("deit", 0.0), ("deit", 0.8)])
def test_training_batches_follow_from_the_seed(side, augment, mixup, make_images):
    if augment == "deit":
        pytest.importorskip("PIL")
    s = make_images(9, side=side)
    examples = fit(s, augment=augment, mixup=mixup)(s, training=True)

    def batch(seed):
        torch.manual_seed(seed)
        return examples.__getitems__([8, 0, 3, 4, 5])

    first, again, other = batch(0), batch(0), batch(1)
    assert first.inputs.shape == (5, 3, 8, 8)
    assert first.targets.shape == ((5, 3) if mixup else (5,))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first.inputs, other.inputs)


def test_the_number_of_threads_changes_nothing(make_images, monkeypatch):
    pytest.importorskip("PIL")
    s = make_images(30, side=12)
    examples = fit(s, augment="deit")(s, training=True)
    batches = []
    for threads in (1, 5):
        with ThreadPoolExecutor(threads) as pool:
            monkeypatch.setattr(data, "_threads", lambda pool=pool: pool)
            torch.manual_seed(0)
            batches.append(examples.__getitems__(range(30)).inputs)
    assert torch.equal(*batches)


def test_images_whose_mirror_is_another_class_are_not_mirrored(make_images):
    s = make_images(1)
    s.images[:] = np.arange(8, dtype=np.uint8)[:, None] * 10 + 100  # brighter to the right
    look = Look(8, 2, None, "light", flip=True)
    for flip in (False, True):
        examples = ImageData(s, replace(look, flip=flip), training=True)
        rows = examples.__getitems__([0] * 50).inputs[:, 0, 4, 2:6]
        assert bool((rows[:, 0] > rows[:, -1]).any()) == flip


def test_what_cannot_be_is_refused(make_images):
    s = make_images()
    with pytest.raises(ValueError, match="max_length is 4; expected None, since images"):
        fit(s, max_length=4)
    with pytest.raises(ValueError, match="random 0 has images of side 8; expected at least 16"):
        ImageData(s, Look(16, 2, None))
