"""Pairs of papers of the ACL anthology, as bytes; the label says whether one cites the other.

new_aan_pairs.{train,eval,test}.tsv without a header: label, two names, two texts. As in the
benchmark, quotes mean nothing, and the first 10,000 bytes of a text are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ..base import DataError
from .store import Encoded, Source
from .text import VOCABULARY, byte_tokens

SPLITS = {"train": "train", "validation": "eval", "test": "test"}
CLASSES = ("different", "citing")
KEPT = 10_000  # bytes of a text
_LABELS = {b"0": 0, b"1": 1, b"0.0": 0, b"1.0": 1}
__all__ = ["CLASSES", "VOCABULARY", "find", "source"]


def find(folder: Path) -> dict[str, Path]:
    """The files of the benchmark in a folder, by split."""
    for place in (folder / "tsv_data", folder / "retrieval", folder / "aan", folder):
        found = {split: place / f"new_aan_pairs.{name}.tsv" for split, name in SPLITS.items()}
        here = {split: path for split, path in found.items() if path.is_file()}
        if here:
            return here
    return {}


def source(path: Path, split: str) -> Source:
    """The pairs of one file."""

    def items() -> Iterator[bytes]:
        with open(path, "rb") as file:
            yield from file

    def encode(lines: Sequence[bytes], first: int) -> Encoded:
        texts: list[bytes] = []
        labels = []
        for number, line in enumerate(lines, first + 1):
            columns = line.rstrip(b"\r\n").split(b"\t")
            if len(columns) != 5:
                raise DataError(
                    f"{path}, line {number}: found {len(columns)} columns; expected label, two "
                    "names and two texts"
                )
            if columns[0] not in _LABELS:
                shown = columns[0][:20].decode("utf-8", "backslashreplace")
                raise DataError(f"{path}, line {number}: the label is {shown!r}; expected 0 or 1")
            if not columns[3] or not columns[4]:
                raise DataError(f"{path}, line {number}: a text is empty; expected two texts")
            labels.append(_LABELS[columns[0]])
            texts += columns[3][:KEPT], columns[4][:KEPT]
        lengths = np.array([len(text) for text in texts], dtype=np.int64).reshape(-1, 2)
        return Encoded(byte_tokens(b"".join(texts)), lengths, np.array(labels, dtype=np.int64))

    return Source(f"lra/retrieval {split}", [path], items, encode)
