"""Texts as tokens: words or characters, the vocabulary of a training text, pieces of a text."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset

from ...names import check_choice
from ..base import DataError
from ..files import read_utf8

UNKNOWN, END = "<unk>", "<eos>"  # a word that is not known; the end of a line
KINDS = ("words", "characters")
Tokens = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a language model, in the order of their numbers: words between spaces, with a
    token for the end of a line, or characters. What is not known is UNKNOWN, the first one."""

    kind: str
    words: tuple[str, ...]

    @classmethod
    def of(cls, text: str, kind: str, most: int | None = None) -> Self:
        """The tokens of a text, the most frequent first; `most` of them with UNKNOWN."""
        check_choice("tokens", kind, KINDS)
        counts = Counter(_tokens(text, kind))
        counts.pop(UNKNOWN, None)
        ordered = sorted(counts, key=lambda word: (-counts[word], word))
        return cls(kind, (UNKNOWN, *(ordered if most is None else ordered[: most - 1])))

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words)}

    def encode(self, text: str) -> Tokens:
        known = self._numbers
        return np.array([known.get(token, 0) for token in _tokens(text, self.kind)], dtype=np.int64)

    def piece(self, number: int) -> str:
        """What a token adds to a text: words come with the space before them."""
        word = self.words[number]
        if self.kind == "characters":
            return word
        return "\n" if word == END else f" {word}"

    def decode(self, numbers: Iterable[int]) -> str:
        """The text of tokens."""
        return "".join(map(self.piece, numbers))

    def to_dict(self) -> dict[str, Any]:
        return {"reads": "text", "tokens": self.kind, "words": list(self.words)}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        return cls(stored["tokens"], tuple(stored["words"]))


def _tokens(text: str, kind: str) -> list[str]:
    if kind == "characters":
        return list(text)
    return [word for line in text.splitlines() for word in (*line.split(), END)]


def read_text(path: Path) -> str:
    """A text file in UTF-8, perhaps compressed with gzip."""
    text = read_utf8(path)
    if not text.strip():
        raise DataError(f"{path} is empty; expected a text")
    return text


def fingerprint(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class Piece(NamedTuple):
    """Tokens (B, N) and the one that follows each; -100 where none does."""

    tokens: Tensor
    targets: Tensor


class TextData(Dataset[Piece]):
    """A text as pieces of so many tokens, one after the other; each token but the first of the text
    is predicted once. The last piece may be shorter: it is filled up with what is not judged."""

    def __init__(self, tokens: Tokens, length: int) -> None:
        if len(tokens) < 2:
            raise DataError(f"a text has {len(tokens)} tokens; expected at least two")
        self.predicted = len(tokens) - 1
        pieces = -(-self.predicted // length)
        rest = pieces * length - self.predicted
        inputs = np.concatenate([tokens[:-1], np.zeros(rest, dtype=np.int64)])
        targets = np.concatenate([tokens[1:], np.full(rest, -100, dtype=np.int64)])
        self._tokens = torch.from_numpy(inputs.reshape(pieces, length))
        self._targets = torch.from_numpy(targets.reshape(pieces, length))

    def __len__(self) -> int:
        return len(self._tokens)

    def __getitems__(self, indices: Sequence[int]) -> Piece:
        chosen = torch.as_tensor(list(indices))
        return Piece(self._tokens[chosen], self._targets[chosen])

    def count(self, indices: Sequence[int]) -> int:
        """Tokens that are predicted in these pieces."""
        return int((self._targets[torch.as_tensor(list(indices))] >= 0).sum())
