"""Labelled token sequences that may be larger than memory: the set, and its batches."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset

from .examples import Batch
from .series import Integers, check_labels

Tokens = npt.NDArray[Any]  # uint8 or uint16, mapped from a file or in memory


@dataclass(frozen=True, eq=False)
class TokenSet:
    """One labelled collection. All sequences lie one after the other in `tokens`.

    A case has k sequences: one, or two where pairs are compared. Sequence j of case i is
    `tokens[starts[i, j] : starts[i, j] + lengths[i, j]]`. `checksum` names the whole content.
    """

    name: str
    tokens: Tokens  # (total,)
    starts: Integers  # (cases, k)
    lengths: Integers  # (cases, k)
    labels: Integers  # (cases,), indices into classes
    classes: tuple[str, ...]
    vocabulary: int  # tokens are 0 to vocabulary - 1
    checksum: str = ""

    def __post_init__(self) -> None:
        if not len(self.labels):
            raise ValueError(f"{self.name} has no cases; expected at least one")
        cases, shape = len(self.labels), self.starts.shape
        if len(shape) != 2 or shape != self.lengths.shape or shape[0] != cases or shape[1] < 1:
            raise ValueError(
                f"{self.name} has starts {shape} and lengths {self.lengths.shape} for {cases} "
                "labels; expected (cases, sequences of a case) for both"
            )
        ends = self.starts + self.lengths
        if self.lengths.min() < 1 or self.starts.min() < 0 or ends.max() > len(self.tokens):
            raise ValueError(
                f"{self.name} has a sequence that is empty or leaves its {len(self.tokens)} "
                "tokens; expected at least one token for each"
            )
        check_labels(self.name, self.labels, self.classes, missing=False)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def sequences(self) -> int:
        """Sequences of a case: 1, or 2 for pairs."""
        return int(self.starts.shape[1])

    def subset(self, indices: Sequence[int] | Integers) -> TokenSet:
        """The cases at these indices, in their order; the tokens are shared."""
        chosen = np.asarray(indices, dtype=np.int64)
        return TokenSet(
            self.name, self.tokens, self.starts[chosen], self.lengths[chosen],
            self.labels[chosen], self.classes, self.vocabulary, self.checksum,
        )  # fmt: skip

    def fingerprint(self) -> str:
        """A hash of tokens, lengths, labels and classes."""
        digest = hashlib.sha256(repr((self.checksum, self.classes, self.vocabulary)).encode())
        for numbers in (self.starts, self.lengths, self.labels):
            digest.update(numbers.astype("<i8").tobytes())
        return digest.hexdigest()


class TokenData(Dataset[Batch]):
    """A set of single sequences as batches; sequences are cut to max_length.

    A batch has inputs (B, N) int64 with zeros in the padding, padding (B, N) and targets (B,). It
    is as long as its longest sequence, or always `pad_to` long. Use `collate_fn=lambda batch:
    batch` in a DataLoader. Only the pages of the file that a batch needs are read.
    """

    sequences = 1

    def __init__(
        self, s: TokenSet, *, max_length: int | None = None, pad_to: int | None = None
    ) -> None:
        if s.sequences != self.sequences:
            raise ValueError(
                f"{s.name} has {s.sequences} sequences a case; expected {self.sequences}"
            )
        if max_length is not None and max_length < 1:
            raise ValueError(f"max_length is {max_length}; expected an integer of at least 1")
        lengths = s.lengths if max_length is None else np.minimum(s.lengths, max_length)
        self.cut = int((lengths < s.lengths).any(1).sum())
        longest = int(lengths.max())
        if pad_to is not None and pad_to < longest:
            raise ValueError(
                f"pad_to is {pad_to}; expected at least the longest of {s.name}, {longest}"
            )
        self.name, self.classes, self.vocabulary = s.name, s.classes, s.vocabulary
        self.longest, self.pad_to = longest, pad_to
        self.lengths = torch.from_numpy(lengths.max(1))  # (cases,), what a case pays for
        self.targets = torch.from_numpy(s.labels)
        # a plain array over the same file: slices of np.memmap cost ten times as much
        self._tokens, self._starts, self._lengths = np.asarray(s.tokens), s.starts, lengths

    def __len__(self) -> int:
        return len(self.targets)

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        """The whole batch at once."""
        inputs, padding = self._gather(np.asarray(indices))
        return Batch(inputs.squeeze(1), padding.squeeze(1), self.targets[torch.as_tensor(indices)])

    def _gather(self, chosen: Integers) -> tuple[Tensor, Tensor]:
        """Tokens and padding (B, k, N)."""
        starts, lengths = self._starts[chosen], self._lengths[chosen]  # (B, k)
        n = int(lengths.max()) if self.pad_to is None else self.pad_to
        rows = np.zeros((starts.size, n), dtype=np.int64)
        places = zip(rows, starts.ravel().tolist(), lengths.ravel().tolist(), strict=True)
        for row, start, length in places:
            row[:length] = self._tokens[start : start + length]
        padding = np.arange(n) >= lengths[..., None]
        return torch.from_numpy(rows.reshape(*starts.shape, n)), torch.from_numpy(padding)


class PairData(TokenData):
    """A set of pairs as batches: inputs (B, 2, N), padding (B, 2, N), targets (B,).

    The batch comes first in every tensor, and `inputs.flatten(0, 1)` (2 B, N) is what one encoder
    reads in a single pass, free of cost; its pooled rows (2 B, d) are `.view(B, 2, d).unbind(1)`.
    """

    sequences = 2

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        return Batch(*self._gather(np.asarray(indices)), self.targets[torch.as_tensor(indices)])
