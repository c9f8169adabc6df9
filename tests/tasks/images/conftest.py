"""Small sets of images, folders of image files, and a cache of their own for every test."""

import numpy as np
import pytest

from primal_attention.tasks.images import ImageSet


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PRIMAL_ATTENTION_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def random_images(cases=7, side=8, classes=3, *, seed=0):
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (cases, side, side, 3), dtype=np.uint8)
    labels = np.arange(cases) % classes
    return ImageSet(f"random {seed}", images, labels, tuple("abcdefgh"[:classes]))


@pytest.fixture(scope="session")
def make_images():
    return random_images


@pytest.fixture
def image_folder(tmp_path):
    """Makes train/<class>/*.png and val/<class>/*.png, and returns the folder."""
    from PIL import Image

    def make(classes=("cat", "dog"), train=3, val=2, size=(20, 12)):
        rng = np.random.default_rng(0)
        for split, count in (("train", train), ("val", val)):
            for name in classes:
                place = tmp_path / "data" / split / name
                place.mkdir(parents=True)
                for i in range(count):
                    pixels = rng.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
                    Image.fromarray(pixels).save(place / f"{i}.png")
        return tmp_path / "data"

    return make
