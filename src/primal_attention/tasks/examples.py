"""What the engine asks of data: a split as it is loaded, and the same as batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt
from torch import Tensor


class Batch(NamedTuple):
    """Cases of one batch, padded to the longest.

    Targets are classes (B,) int64, or in training shares of classes (B, classes), where cases are
    mixed.
    """

    inputs: Tensor  # (B, N, C) float32, padding zeroed; tokens (B, N) int64; pairs (B, 2, N)
    padding: Tensor  # (B, N) or (B, 2, N) bool, True = ignore
    targets: Tensor


class Part(Protocol):
    """One split of a task. Label -1 is a missing label."""

    @property
    def name(self) -> str: ...
    @property
    def labels(self) -> npt.NDArray[np.int64]: ...  # (cases,), indices into classes
    @property
    def classes(self) -> tuple[str, ...]: ...

    def __len__(self) -> int: ...

    def subset(self, indices: Sequence[int] | npt.NDArray[np.int64]) -> Self:
        """The cases at these indices, in their order."""

    def fingerprint(self) -> str:
        """A hash of all that a model may learn from."""


class Examples(Protocol):
    """A split as batches. `lengths` is what a case costs in positions; `cut` counts the cases that
    were cut. Random numbers (augmentation) come from torch's default generator."""

    name: str
    classes: tuple[str, ...]
    targets: Tensor  # (cases,) int64
    lengths: Tensor  # (cases,) int64
    cut: int

    def __len__(self) -> int: ...

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        """The whole batch at once."""


class Reader(Protocol):
    """Turns splits into examples, with what was learned from the training part alone."""

    @property
    def shape(self) -> Mapping[str, int]: ...  # what a model must know of the data, by name

    def __call__(self, part: Any, *, training: bool = False) -> Examples: ...

    def to_dict(self) -> dict[str, Any] | None:
        """For reader.json, with which new cases are read as the training part was; None where a
        trained model is not read again."""
