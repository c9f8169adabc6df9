"""The tasks: where their images come from, and what a model sees of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..cifar10 import CLASSES, HOW_TO_GET, read_cifar10, splits_in
from ..classification.settings import RunConfig
from ..folders import data_folder
from ..placed import PlacedTask, name_the_folder, named_folder
from .data import ImageReader
from .folder import FOLDERS, find_root, open_split
from .sets import ImageSet

if TYPE_CHECKING:
    from torch import nn

_DIGITS = {"train": slice(None, 1437), "test": slice(1437, None)}


@dataclass(frozen=True, kw_only=True)
class ImageTask(PlacedTask[ImageSet]):
    """Classify images with a vision transformer; the metric is accuracy."""

    size: int  # the model sees images (3, size, size)
    patch: int
    flip: bool = True  # whether a mirrored image keeps its label

    def reader(self, train: ImageSet, settings: RunConfig) -> ImageReader:
        return ImageReader.fit(train, settings, size=self.size, patch=self.patch, flip=self.flip)

    def model(self, settings: RunConfig, shape: Mapping[str, int]) -> nn.Module:
        from .model import build_vision_transformer

        return build_vision_transformer(settings, **shape)


class Digits(ImageTask):
    """Handwritten digits of scikit-learn: the first 1,437 images train, the last 360 test."""

    def places(self, data_dir: Path | str | None) -> dict[str, Path]:
        from importlib.util import find_spec

        found = find_spec("sklearn")
        if found is None or found.origin is None:
            return {}
        return dict.fromkeys(self.splits, Path(found.origin).parent / "datasets" / "data")

    def read(self, place: Path, split: str) -> ImageSet:
        from sklearn.datasets import load_digits

        digits = load_digits()
        part = _DIGITS[split]
        grey = (digits.images[part] * 15).astype(np.uint8)  # from 0..16 to 0..240
        images = np.repeat(grey[..., None], 3, axis=-1)
        labels = digits.target[part].astype(np.int64)
        return ImageSet(f"digits {split}", images, labels, tuple("0123456789"))

    def how_to_get(self, data_dir: Path | str | None, missing: Sequence[str]) -> str:
        return "it comes with scikit-learn; install 'primal-attention[train]'"


class Cifar10(ImageTask):
    """CIFAR-10 from its binary batches."""

    def places(self, data_dir: Path | str | None) -> dict[str, Path]:
        folder = data_folder(data_dir)
        return {} if folder is None else splits_in(folder)

    def read(self, place: Path, split: str) -> ImageSet:
        images, labels = read_cifar10(place, split)
        return ImageSet(f"CIFAR-10 {split}", images, labels, CLASSES)

    def how_to_get(self, data_dir: Path | str | None, missing: Sequence[str]) -> str:
        return HOW_TO_GET + name_the_folder(data_dir)


@dataclass(frozen=True, kw_only=True)
class Folder(ImageTask):
    """Images in folders, one a class; they are stored with a margin around what a model sees."""

    store: int  # side of the stored images

    def places(self, data_dir: Path | str | None) -> dict[str, Path]:
        folder = data_folder(data_dir)
        root = None if folder is None else find_root(folder)
        if root is None:
            return {}
        return {s: root / FOLDERS[s] for s in self.splits if (root / FOLDERS[s]).is_dir()}

    def read(self, place: Path, split: str) -> ImageSet:
        return open_split(place.parent, split, self.store, name=self.name)

    def how_to_get(self, data_dir: Path | str | None, missing: Sequence[str]) -> str:
        root = named_folder(data_dir)
        return (
            f"expected {root}/train/<class>/*.jpg and {root}/val/<class>/*.jpg (or .png)"
            + name_the_folder(data_dir)
        )
