from random import Random

import numpy as np
import pytest

pytest.importorskip("PIL")
from PIL import Image

from primal_attention.tasks.images import randaugment
from primal_attention.tasks.images.randaugment import augmented, resized_window


@pytest.fixture
def pixels():
    """A smooth picture with noise, not symmetric in any way."""
    y, x = np.mgrid[0:20, 0:20] / 20
    picture = np.stack([40 + 150 * x, 30 + 120 * y, 60 + 100 * x * y], -1)
    return (
        (picture + np.random.default_rng(0).normal(0, 12, picture.shape)).clip(0, 255).astype("u1")
    )


@pytest.mark.parametrize("name", randaugment._OPERATIONS)
def test_an_operation_changes_the_image_and_keeps_its_form(name, pixels):
    image = Image.fromarray(pixels)
    changed = randaugment._OPERATIONS[name](image, 0.9, Random(0))
    assert (changed.size, changed.mode) == (image.size, "RGB")
    assert not np.array_equal(np.asarray(changed), pixels)
    assert np.array_equal(np.asarray(image), pixels)


@pytest.mark.parametrize("name", ["rotate", "shear_x", "shear_y", "translate_x", "translate_y"])
def test_strength_zero_moves_nothing(name, pixels):
    same = randaugment._OPERATIONS[name](Image.fromarray(pixels), 0.0, Random(0))
    assert np.array_equal(np.asarray(same), pixels)


@pytest.mark.parametrize("name", ["color", "contrast", "brightness", "sharpness"])
def test_strength_zero_enhances_nothing(name, pixels):
    same = randaugment._OPERATIONS[name](Image.fromarray(pixels), 0.0, Random(0))
    np.testing.assert_allclose(np.asarray(same).astype(int), pixels.astype(int), atol=1)


def test_all_operations_come_up(pixels, monkeypatch):
    used = set()

    def noted(name):
        return lambda image, strength, lottery: used.add((name, 0 <= strength <= 1)) or image

    for name in randaugment._OPERATIONS:
        monkeypatch.setitem(randaugment._OPERATIONS, name, noted(name))
    for seed in range(300):
        augmented(pixels, seed, size=20, window=False, flip=False)
    assert used == {(name, True) for name in randaugment._OPERATIONS}


def test_the_seed_decides(pixels):
    def make(seed):
        return augmented(pixels, seed, size=16, window=True, flip=True)

    assert make(5).shape == (16, 16, 3)
    assert make(5).dtype == np.uint8
    assert np.array_equal(make(5), make(5))
    assert len({make(seed).tobytes() for seed in range(20)}) == 20


def test_windows_lie_inside_and_vary():
    class Recorder:
        size = (30, 20)

        def resize(self, size, resample, box):
            self.box = box
            return self

    areas = []
    for seed in range(200):
        left, top, right, bottom = resized_window(Recorder(), 8, Random(seed)).box
        assert 0 <= left < right <= 30 + 1e-9
        assert 0 <= top < bottom <= 20 + 1e-9
        areas.append((right - left) * (bottom - top) / 600)
        assert 0.7 < (right - left) / (bottom - top) < 1.6
    assert min(areas) < 0.15
    assert max(areas) > 0.6


def test_a_missing_pillow_is_one_sentence(pixels, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r"needs Pillow; install 'primal-attention\[data\]'"):
        augmented(pixels, 0, size=20, window=False, flip=False)
