"""IMDB reviews as bytes: token b + 1 for byte b, 0 for padding.

aclImdb/{train,test}/{neg,pos}/*.txt, unpacked or in a tar file.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from ..base import DataError
from .store import Encoded, Source

CLASSES = ("neg", "pos")
SPLITS = ("train", "test")
VOCABULARY = 257
_TOP = "aclImdb"
_ENDINGS = (".tar", ".tar.xz", ".tar.gz", ".tgz")

Review = tuple[bytes, int]


def find(folder: Path) -> dict[str, Path]:
    """The folder aclImdb, or a tar file of it, by split."""
    for place in (folder / "imdb", folder):
        here = {s: place / _TOP for s in SPLITS if (place / _TOP / s).is_dir()}
        if here:
            return here
        archives = [p for p in sorted(place.glob(f"{_TOP}*")) if p.name.endswith(_ENDINGS)]
        if archives:
            return dict.fromkeys(SPLITS, archives[0])
    return {}


def source(place: Path, split: str) -> Source:
    """The reviews of a split by class and file name: the same from a folder and from a tar."""

    def items() -> Iterator[Review]:
        return _from_folder(place, split) if place.is_dir() else _from_archive(place, split)

    def encode(reviews: Sequence[Review], first: int) -> Encoded:
        texts = [text for text, _ in reviews]
        lengths = np.array([[len(text)] for text in texts], dtype=np.int64)
        labels = np.array([label for _, label in reviews], dtype=np.int64)
        return Encoded(byte_tokens(b"".join(texts)), lengths, labels)

    # a folder's time changes with its entries; 25,000 files need not be asked
    files = [place / split / c for c in CLASSES] if place.is_dir() else [place]
    for path in files:
        if not path.exists():
            raise DataError(f"{path} is not here; expected a folder with reviews for each class")
    return Source(f"lra/text {split}", files, items, encode)


def byte_tokens(text: bytes) -> np.ndarray[tuple[int], np.dtype[np.uint16]]:
    """Tokens 1 to 256."""
    return np.frombuffer(text, dtype=np.uint8).astype(np.uint16) + 1


def _from_folder(place: Path, split: str) -> Iterator[Review]:
    for label, name in enumerate(CLASSES):
        paths = sorted((place / split / name).glob("*.txt"))
        if not paths:
            raise DataError(f"{place / split / name} has no reviews; expected .txt files")
        for path in paths:
            yield _filled(path.read_bytes(), path), label


def _from_archive(place: Path, split: str) -> Iterator[Review]:
    found: dict[tuple[int, str], bytes] = {}
    try:
        with tarfile.open(place) as archive:
            for member in archive:
                parts = PurePosixPath(member.name).parts[-4:]
                if len(parts) == 4 and parts[:2] == (_TOP, split) and parts[2] in CLASSES:
                    file = archive.extractfile(member)
                    if file is not None and parts[3].endswith(".txt"):
                        text = _filled(file.read(), f"{place}, {member.name}")
                        found[CLASSES.index(parts[2]), parts[3]] = text
    except (tarfile.TarError, EOFError, OSError) as error:
        raise DataError(f"{place} cannot be read as a tar file: {error}") from error
    for label, name in enumerate(CLASSES):
        if all(known != label for known, _ in found):
            raise DataError(f"{place} has no reviews in {_TOP}/{split}/{name}; expected .txt files")
    for key in sorted(found):
        yield found[key], key[0]


def _filled(text: bytes, path: Path | str) -> bytes:
    if not text:
        raise DataError(f"{path} is empty; expected a review")
    return text
