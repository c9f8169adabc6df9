"""IMDB reviews as bytes: token b + 1 for byte b, 0 for padding.

aclImdb/{train,test}/{neg,pos}/*.txt, unpacked or in a tar file.
"""

from __future__ import annotations

import lzma
import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from ..base import DataError
from ..stores import tell
from .store import Encoded, Source

CLASSES = ("neg", "pos")
SPLITS = ("train", "test")
VOCABULARY = 257
_TOP = "aclImdb"
_ENDINGS = (".tar", ".tar.xz", ".tar.gz", ".tgz")

_TOLD = 1000  # reviews found in a tar file between two messages

Review = tuple[Path | bytes, int]  # a file, or what is in it; label


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
    name = f"lra/text {split}"
    if place.is_dir():
        files = _in_folder(place / split)
        return Source(name, [path for path, _ in files], lambda: files, _encode)
    return Source(name, [place], lambda: _in_archive(place, split), _encode)


def byte_tokens(text: bytes) -> np.ndarray[tuple[int], np.dtype[np.uint16]]:
    """Tokens 1 to 256."""
    return np.frombuffer(text, dtype=np.uint8).astype(np.uint16) + 1


def _encode(reviews: Sequence[Review], first: int) -> Encoded:
    texts = [
        _filled(text.read_bytes(), text) if isinstance(text, Path) else text for text, _ in reviews
    ]
    lengths = np.array([[len(text)] for text in texts], dtype=np.int64)
    labels = np.array([label for _, label in reviews], dtype=np.int64)
    return Encoded(byte_tokens(b"".join(texts)), lengths, labels)


def _in_folder(place: Path) -> list[tuple[Path, int]]:
    found: list[tuple[Path, int]] = []
    for label, name in enumerate(CLASSES):
        folder = place / name
        if not folder.is_dir():
            raise DataError(f"{folder} is not here; expected a folder with reviews for each class")
        paths = sorted(path for path in folder.glob("*.txt") if _is_review(path.name))
        if not paths:
            raise DataError(f"{folder} has no reviews; expected .txt files")
        found += [(path, label) for path in paths]
    return found


def _in_archive(place: Path, split: str) -> list[tuple[bytes, int]]:
    found: dict[tuple[int, str], bytes] = {}
    try:
        with tarfile.open(place) as archive:
            for member in archive:
                *_, top, part, name, file = ("", "", "", "", *PurePosixPath(member.name).parts)
                if (top, part) != (_TOP, split) or name not in CLASSES or not _is_review(file):
                    continue
                content = archive.extractfile(member) if member.isfile() else None
                if content is not None:
                    text = _filled(content.read(), f"{place}, {member.name}")
                    found[CLASSES.index(name), file] = text
                    if len(found) % _TOLD == 0:
                        tell(str(place), len(found), None)
            while archive.fileobj is not None and archive.fileobj.read(2**20):
                pass  # to the end, where gzip and xz have their checksums
    except (tarfile.TarError, EOFError, OSError, lzma.LZMAError, zlib.error) as error:
        raise DataError(f"{place} cannot be read as a tar file: {error}") from error
    for label, name in enumerate(CLASSES):
        if all(known != label for known, _ in found):
            raise DataError(f"{place} has no reviews in {_TOP}/{split}/{name}; expected .txt files")
    return [(found[key], key[0]) for key in sorted(found)]


def _is_review(name: str) -> bool:
    return name.endswith(".txt") and not name.startswith(".")  # "._1_7.txt" is of a file manager


def _filled(text: bytes, path: Path | str) -> bytes:
    if not text:
        raise DataError(f"{path} is empty; expected a review")
    return text
