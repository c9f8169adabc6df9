"""CIFAR-10 as sequences of 1,024 grey values, row by row; a token is a value from 0 to 255."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..cifar10 import CLASSES, Images, batch_files, read_batch, splits_in
from .store import Encoded, Source

VOCABULARY = 256
VALIDATION = 0.1  # the last tenth of the training set
__all__ = ["CLASSES", "VOCABULARY", "find", "grey", "source"]


def find(folder: Path) -> dict[str, Path]:
    """The folder of the batches, for every split whose files are all there."""
    here = splits_in(folder)
    needs = {"train": "train", "validation": "train", "test": "test"}
    return {split: here[needed] for split, needed in needs.items() if needed in here}


def source(folder: Path, split: str) -> Source:
    """The first nine tenths of the training batches, their last tenth, or the test batch."""
    files = batch_files(folder, "test" if split == "test" else "train")

    def items() -> list[tuple[Images, np.int64]]:
        read = [read_batch(path) for path in files]
        cases = [case for images, labels in read for case in zip(images, labels, strict=True)]
        cut = len(cases) - round(VALIDATION * len(cases))
        parts = {"train": slice(None, cut), "validation": slice(cut, None), "test": slice(None)}
        return cases[parts[split]]

    def encode(cases: Sequence[tuple[Images, np.int64]], first: int) -> Encoded:
        images, labels = zip(*cases, strict=True)
        tokens = grey(np.stack(images))
        lengths = np.full((len(cases), 1), tokens.shape[1], dtype=np.int64)
        return Encoded(tokens.ravel(), lengths, np.array(labels, dtype=np.int64))

    return Source(f"lra/image {split}", files, items, encode, f"validation {VALIDATION}")


def grey(images: Images) -> Images:
    """Grey values (n, 1024) of images (n, 32, 32, 3): the luma 0.2989 R + 0.587 G + 0.114 B on the
    scale from 0 to 1, back to bytes as floor(255.5 x), which is what the benchmark's library does.
    """
    weights = np.array([0.2989, 0.5870, 0.1140], dtype=np.float32)
    scale = np.float32(1 / 255)
    luma = (images.astype(np.float32) * scale) @ weights
    return (luma * np.float32(255.5)).astype(np.uint8).reshape(len(images), -1)
