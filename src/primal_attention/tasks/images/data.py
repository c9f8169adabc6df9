"""Sets of images as batches, normalised by the statistics of the training part."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from ..classification.settings import RunConfig
from ..examples import Batch
from ..series import stored_classes
from .augment import crop_and_flip, erase, mix
from .randaugment import augmented
from .sets import ImageSet, Pixels, Statistics, statistics


@dataclass(frozen=True)
class Look:
    """How a model sees images: of which size, cut into which patches, changed how in training."""

    size: int
    patch: int
    statistics: Statistics | None  # None: bytes / 255
    augment: str = "none"
    mixup: float = 0.0
    flip: bool = True  # whether a mirrored image keeps its label

    @property
    def tokens(self) -> int:
        return (self.size // self.patch) ** 2


class ImageData(Dataset[Batch]):
    """A set as batches: inputs (B, 3, size, size) float32, targets (B,), or (B, classes) if mixed.

    Without training, larger images are cut to their centre. In training, augment "light" takes a
    random window and mirrors it; "deit" adds RandAugment and random erasing, and takes windows of
    any size from images that are larger than `size`. All random numbers follow from torch's default
    generator. Padding is False (B, tokens), for the engine alone: images of one size have none, and
    the model ignores it. `lengths` are the patches of an image.
    """

    def __init__(self, s: ImageSet, look: Look, *, training: bool = False) -> None:
        if s.side < look.size:
            raise ValueError(f"{s.name} has images of side {s.side}; expected at least {look.size}")
        self.name, self.classes, self.look = s.name, s.classes, look
        self.training, self.cut = training, 0
        self.targets = torch.from_numpy(s.labels.astype(np.int64))
        self.lengths = torch.full((len(s),), look.tokens)
        # a plain array over the same file: slices of np.memmap cost more
        self._images, self._rows, self._side = np.asarray(s.images), s.rows, s.side
        known = look.statistics or Statistics((0.0,) * 3, (255.0,) * 3)
        self._mean, self._deviation = (torch.tensor(values).view(3, 1, 1) for values in known)

    def __len__(self) -> int:
        return len(self.targets)

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        """The whole batch at once."""
        look = self.look
        images = self._images[self._rows[np.asarray(indices)]]  # (B, S, S, 3), a copy
        inputs = self._normalised(self._seen(images))
        targets = self.targets[torch.as_tensor(indices)]
        padding = torch.zeros(len(targets), look.tokens, dtype=torch.bool)
        if self.training and look.augment == "deit":
            inputs = erase(inputs)
        if self.training and look.mixup:
            cut = look.augment == "deit"
            inputs, targets = mix(inputs, targets, len(self.classes), look.mixup, cut=cut)
        return Batch(inputs, padding, targets)

    def _seen(self, images: Pixels) -> Tensor:
        """Bytes (B, size, size, 3)."""
        size, flip = self.look.size, self.look.flip
        if self.training and self.look.augment == "light":
            return crop_and_flip(torch.from_numpy(images), size, flip=flip)
        if self.training and self.look.augment == "deit":
            larger = self._side > size
            if not larger:
                images = crop_and_flip(torch.from_numpy(images), size, flip=flip).numpy()
            # a seed for each image: the order in which threads come does not matter
            seeds = torch.randint(2**62, (len(images),)).tolist()
            change = functools.partial(augmented, size=size, window=larger, flip=flip and larger)
            return torch.from_numpy(np.stack(list(_threads().map(change, images, seeds))))
        first = (self._side - size) // 2
        window = slice(first, first + size)
        return torch.from_numpy(images[:, window, window])

    def _normalised(self, images: Tensor) -> Tensor:
        """Channels first, while the values are still bytes: a quarter of the memory to move."""
        values = images.permute(0, 3, 1, 2).contiguous().float()
        return values.sub_(self._mean).div_(self._deviation)


@functools.cache
def _threads() -> ThreadPoolExecutor:
    """Pillow lets other threads compute while it works on pixels."""
    return ThreadPoolExecutor(min(32, os.cpu_count() or 1), thread_name_prefix="images")


@dataclass(frozen=True)
class ImageReader:
    """Makes batches of sets, as one look says."""

    look: Look
    shape: dict[str, int]
    classes: tuple[str, ...] = ()

    @classmethod
    def fit(
        cls, train: ImageSet, settings: RunConfig, *, size: int, patch: int, flip: bool
    ) -> ImageReader:
        if settings.max_length is not None:
            raise ValueError(
                f"max_length is {settings.max_length}; expected None, since images are not cut"
            )
        known = statistics(train) if settings.normalise == "channel" else None
        look = Look(size, patch, known, settings.augment, settings.mixup, flip)
        shape = {"classes": len(train.classes), "size": size, "patch": patch}
        return cls(look, shape, train.classes)

    def __call__(self, part: ImageSet, *, training: bool = False) -> ImageData:
        return ImageData(part, self.look, training=training)

    def to_dict(self) -> dict[str, Any]:
        known = self.look.statistics
        return {
            "reads": "images",
            "shape": self.shape,
            "classes": list(self.classes),
            "statistics": None if known is None else [list(values) for values in known],
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> ImageReader:
        shape, known = stored["shape"], stored["statistics"]
        statistics = None if known is None else Statistics(*(tuple(values) for values in known))
        look = Look(shape["size"], shape["patch"], statistics)
        return cls(look, shape, stored_classes(stored["classes"], shape["classes"]))
