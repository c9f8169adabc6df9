"""Token stores: files read once, kept as flat arrays that are mapped into memory.

<cache>/<name>/<key>/tokens.npy  (total,) uint8 or uint16      one sequence after the other
                     lengths.npy (cases, k) int64
                     labels.npy  (cases,) int64
                     store.json  checksums; written last, so it says that the store is whole

The key follows from the source: its files, their sizes and times. A build writes parts; one that
was killed resumes with the first part that is missing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence, Sized
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...runs.files import replacing, write_json
from ..base import DataError
from ..folders import cache_folder
from ..series import Integers
from ..stores import WHOLE, building, damaged, tell
from ..tokens import Tokens, TokenSet

FORMAT = 1  # raise it when an encoding changes: old stores are then built again
PART = 2000  # cases of a part


class Encoded(NamedTuple):
    """Some cases: all their tokens in a row, and how to cut them."""

    tokens: Tokens  # (total,) uint8 or uint16
    lengths: Integers  # (cases, k)
    labels: Integers  # (cases,)


@dataclass(frozen=True)
class Source:
    """Where the cases of a split come from.

    `items` gives raw cases in an order that never changes, with `len` if they are easily counted;
    `encode` turns some of them, the first of which has the number that is given, into tokens.
    `files` decide whether a store is current.
    """

    name: str  # e.g. "lra/listops train"
    files: Sequence[Path]
    items: Callable[[], Iterable[Any]]
    encode: Callable[[Sequence[Any], int], Encoded]
    settings: str = ""  # anything else that decides the content

    def key(self) -> str:
        """A hash of what decides the content."""
        digest = hashlib.sha256(repr((FORMAT, self.name, self.settings)).encode())
        for path in self.files:
            facts = path.stat()
            digest.update(repr((str(path), facts.st_size, facts.st_mtime_ns)).encode())
        return digest.hexdigest()[:16]


def open_set(source: Source, classes: tuple[str, ...], vocabulary: int) -> TokenSet:
    """The set of a source, from its store; the first time the store is built."""
    folder = cache_folder() / source.name.replace(" ", "/") / source.key()
    if not (folder / WHOLE).is_file():
        build(source, folder)
    tokens, lengths, labels = _read(folder)
    ends = np.cumsum(lengths.ravel(), dtype=np.int64)
    starts = (ends - lengths.ravel()).reshape(lengths.shape)
    checksum = hashlib.sha256((folder / WHOLE).read_bytes()).hexdigest()
    return TokenSet(source.name, tokens, starts, lengths, labels, classes, vocabulary, checksum)


def build(source: Source, folder: Path, *, part: int = PART) -> None:
    """Write the store of a source into a folder; listeners are notified."""
    with building(folder, source.name) as empty:
        if empty:
            _fill(source, folder, part)


def _fill(source: Source, folder: Path, part: int) -> None:
    parts: list[Path] = []
    cases = source.items()
    total = len(cases) if isinstance(cases, Sized) else None
    items = iter(cases)
    while chosen := list(islice(items, part)):
        path = folder / f"part-{part}-{len(parts):05d}.npz"
        if not path.is_file():
            encoded = source.encode(chosen, len(parts) * part)
            with replacing(path) as beside, open(beside, "wb") as file:
                np.savez(file, **encoded._asdict())
        parts.append(path)
        tell(source.name, (len(parts) - 1) * part + len(chosen), total)
    if not parts:
        raise DataError(f"{source.name} has no cases in {source.files[0]}; expected some")
    _join(folder, parts)


def _join(folder: Path, parts: Sequence[Path]) -> None:
    """Parts to the three arrays, one after the other, so that no more than a part is in memory."""
    lengths = [_stored(path, "lengths") for path in parts]
    cases, k = sum(map(len, lengths)), lengths[0].shape[1]
    total = sum(int(each.sum()) for each in lengths)
    shapes = {"tokens": (total,), "lengths": (cases, k), "labels": (cases,)}
    sums = {}
    for name, shape in shapes.items():
        target = folder / f"{name}.npy"
        with replacing(target) as beside, open(beside, "wb") as file:
            kind = _stored(parts[0], name).dtype.str
            header = {"descr": kind, "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            for path in parts:
                file.write(_stored(path, name).data)
        sums[name] = _checksum(target)
    write_json(folder / WHOLE, sums)
    for path in folder.glob("part-*.npz"):
        path.unlink()


def _stored(part: Path, name: str) -> np.ndarray[Any, Any]:
    with np.load(part, allow_pickle=False) as stored:
        return np.ascontiguousarray(stored[name])


def _read(folder: Path) -> Encoded:
    """The arrays, tokens mapped; the checksums are compared, which also reads the file ahead."""
    try:
        sums = json.loads((folder / WHOLE).read_bytes())
        wrong = [n for n in Encoded._fields if _checksum(folder / f"{n}.npy") != sums[n]]
        if not wrong:
            tokens = np.lib.format.open_memmap(folder / "tokens.npy", mode="r")
            files = (folder / f"{name}.npy" for name in ("lengths", "labels"))
            return Encoded(tokens, *(np.load(path, allow_pickle=False) for path in files))
        reason = f"the checksum of {wrong[0]}.npy is another one"
    except (OSError, ValueError, KeyError) as error:
        reason = str(error)
    raise damaged(folder, reason)


def _checksum(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
