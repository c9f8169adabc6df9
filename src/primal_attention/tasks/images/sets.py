"""Labelled square images, in memory or mapped from a file."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..series import Integers, check_labels

Pixels = npt.NDArray[np.uint8]

_SAMPLE = 10_000  # images that the statistics are taken from, at most


@dataclass(frozen=True, eq=False)
class ImageSet:
    """One labelled collection. Case i is `images[rows[i]]`, so that a subset copies no pixels.

    `checksum` names the content of `images` where hashing it again would take long.
    """

    name: str
    images: Pixels  # (n, S, S, 3)
    labels: Integers  # (cases,), indices into classes
    classes: tuple[str, ...]
    rows: Integers = field(default_factory=lambda: np.empty(0, dtype=np.int64))  # (cases,)
    checksum: str = ""

    def __post_init__(self) -> None:
        if not len(self.labels):
            raise ValueError(f"{self.name} has no images; expected at least one")
        if not len(self.rows):  # all images, in their order
            object.__setattr__(self, "rows", np.arange(len(self.images)))
        shape = self.images.shape
        if len(shape) != 4 or shape[1] != shape[2] or shape[3] != 3:
            raise ValueError(f"{self.name} has images {shape}; expected (n, side, side, 3)")
        if self.images.dtype != np.uint8:
            raise ValueError(f"{self.name} has images of {self.images.dtype}; expected uint8")
        if self.labels.shape != self.rows.shape:
            raise ValueError(
                f"{self.name} has {len(self.labels)} labels for {len(self.rows)} images; "
                "expected one for each"
            )
        check_labels(self.name, self.labels, self.classes, missing=True)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def side(self) -> int:
        return int(self.images.shape[1])

    def subset(self, indices: Sequence[int] | Integers) -> ImageSet:
        """The cases at these indices, in their order; the pixels are shared."""
        chosen = np.asarray(indices, dtype=np.int64)
        labels, rows = self.labels[chosen], self.rows[chosen]
        return ImageSet(self.name, self.images, labels, self.classes, rows, self.checksum)

    def fingerprint(self) -> str:
        """A hash of pixels, labels and classes."""
        digest = hashlib.sha256(repr((self.classes, self.images.shape[1:])).encode())
        digest.update(self.labels.astype("<i8").tobytes())
        if self.checksum:
            digest.update(self.checksum.encode())
            digest.update(self.rows.astype("<i8").tobytes())
            return digest.hexdigest()
        for first in range(0, len(self), 1000):
            digest.update(np.ascontiguousarray(self.images[self.rows[first : first + 1000]]).data)
        return digest.hexdigest()


class Statistics(NamedTuple):
    """Mean and deviation of the bytes of each channel; a constant channel has deviation 1."""

    mean: tuple[float, float, float]
    deviation: tuple[float, float, float]


def statistics(train: ImageSet) -> Statistics:
    """Over all images, or over 10,000 evenly spaced ones, since a store may exceed the memory."""
    step = -(-len(train) // _SAMPLE)
    rows = train.rows[::step]
    counts = np.zeros((3, 256))  # exact: sums of bytes as histograms
    for first in range(0, len(rows), 1000):
        images = train.images[rows[first : first + 1000]]
        for channel in range(3):
            counts[channel] += np.bincount(images[..., channel].ravel(), minlength=256)
    share = counts / counts.sum(1, keepdims=True)
    values = np.arange(256)
    mean = share @ values
    deviation = np.sqrt((share * (values - mean[:, None]) ** 2).sum(1))
    deviation[(counts > 0).sum(1) == 1] = 1.0
    return Statistics(tuple(mean.tolist()), tuple(deviation.tolist()))
