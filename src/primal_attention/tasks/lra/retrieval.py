"""Pairs of papers of the ACL anthology, as bytes; the label says whether one cites the other.

new_aan_pairs.{train,eval,test}.tsv without a header: label, two names, two texts. As in the
benchmark, quotes mean nothing, and the first 10,000 bytes of a text are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from .lines import Lines, shown, split_files
from .store import Encoded, Source
from .text import VOCABULARY, byte_tokens

FILES = {
    split: f"new_aan_pairs.{name}.tsv"
    for split, name in (("train", "train"), ("validation", "eval"), ("test", "test"))
}
CLASSES = ("different", "citing")
KEPT = 10_000  # bytes of a text
_LABELS = {b"0": 0, b"1": 1, b"0.0": 0, b"1.0": 1}
__all__ = ["CLASSES", "VOCABULARY", "find", "source"]


def find(folder: Path) -> dict[str, Path]:
    """The files of the benchmark in a folder, by split."""
    return split_files(folder, ("tsv_data", "retrieval", "aan", "."), FILES)


def source(path: Path, split: str) -> Source:
    """The pairs of one file."""
    file = Lines(path)

    def encode(lines: Sequence[bytes], first: int) -> Encoded:
        cases = file.parse(lines, first, parse_line)
        labels = [label for label, _, _ in cases]
        texts = [text for _, *pair in cases for text in pair]
        lengths = np.array([len(text) for text in texts], dtype=np.int64).reshape(-1, 2)
        return Encoded(byte_tokens(b"".join(texts)), lengths, np.array(labels, dtype=np.int64))

    return Source(f"lra/retrieval {split}", [path], lambda: file, encode)


def parse_line(line: bytes) -> tuple[int, bytes, bytes]:
    """Label and texts of a line of the file."""
    columns = line.rstrip(b"\r\n").split(b"\t")
    if len(columns) != 5:
        raise ValueError(f"found {len(columns)} columns; expected label, two names and two texts")
    label, _, _, first, second = columns
    if label not in _LABELS:
        raise ValueError(f"the label is {shown(label)}; expected 0 or 1")
    if not first or not second:
        raise ValueError("a text is empty; expected two texts")
    return _LABELS[label], first[:KEPT], second[:KEPT]
