"""Pathfinder: are two dots joined by a dashed line? Pictures of 32 x 32, as 1,024 grey values.

pathfinder32/curv_contour_length_14/metadata/*.npy      text, one picture a line:
    imgs/0 sample_0.png 0 1 1.0 14 4 2 0.5 1 1          folder, file, number, label, settings
pathfinder32/curv_contour_length_14/imgs/0/sample_0.png
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ...runs.extras import needs_extra
from ..base import DataError
from .store import Encoded, Source

CLASSES = ("apart", "joined")
SPLITS = ("train", "validation", "test")
VOCABULARY = 256
SIZE = 32
LEVEL = "curv_contour_length_14"
_SHUFFLE = 0  # the seed of the split

Picture = tuple[Path, int]


def find(folder: Path) -> dict[str, Path]:
    """The folder of the hardest level; all splits come from it."""
    for place in (folder / "pathfinder32" / LEVEL, folder / "pathfinder" / LEVEL, folder / LEVEL):
        if metadata_files(place):
            return dict.fromkeys(SPLITS, place)
    return {}


def metadata_files(folder: Path) -> list[Path]:
    """In the order of their numbers."""
    found = [path for path in (folder / "metadata").glob("*.npy") if path.stem.isdecimal()]
    return sorted(found, key=lambda path: int(path.stem))


def source(folder: Path, split: str) -> Source:
    """80, 10 and 10 % of the pictures, shuffled always in the same way. As in the benchmark, empty
    files, of which it has a few, are left out."""
    files = metadata_files(folder)

    def items() -> list[Picture]:
        pictures = [picture for path in files for picture in read_metadata(path, folder)]
        order = np.random.default_rng(_SHUFFLE).permutation(len(pictures)).tolist()
        cuts = [0, int(0.8 * len(order)), int(0.9 * len(order)), len(order)]
        i = SPLITS.index(split)
        return [pictures[place] for place in order[cuts[i] : cuts[i + 1]]]

    def encode(pictures: Sequence[Picture], first: int) -> Encoded:
        data = [_read(path) for path, _ in pictures]
        rows = [read_png(d, p) for d, (p, _) in zip(data, pictures, strict=True) if d]
        tokens = np.array(rows, dtype=np.uint8)
        labels = [label for d, (_, label) in zip(data, pictures, strict=True) if d]
        lengths = np.full((len(rows), 1), SIZE * SIZE, dtype=np.int64)
        return Encoded(tokens.ravel(), lengths, np.array(labels, dtype=np.int64))

    return Source(f"lra/pathfinder {split}", files, items, encode, f"shuffle {_SHUFFLE}")


def read_metadata(path: Path, folder: Path) -> list[Picture]:
    """Pictures and labels of one metadata file."""
    data = path.read_bytes()
    if data.startswith(b"\x93NUMPY"):  # a true array, as the authors' generator writes it
        try:
            lines = [" ".join(row) for row in np.load(io.BytesIO(data), allow_pickle=False)]
        except (ValueError, TypeError) as error:
            raise DataError(f"{path} is not an array of text: {error}") from error
    else:
        lines = data.decode("utf-8", "backslashreplace").splitlines()
    pictures = []
    for number, line in enumerate(lines, 1):
        words = line.split()
        if len(words) < 4 or words[3] not in ("0", "1"):
            raise DataError(
                f"{path}, line {number}: found {line[:60]!r}; expected folder, file, number and "
                "label (0 or 1)"
            )
        pictures.append((folder / words[0] / words[1], int(words[3])))
    return pictures


def read_png(data: bytes, path: Path | str) -> npt.NDArray[np.uint8]:
    """Grey values (32, 32) of a PNG file."""
    with needs_extra("data", "PNG files need"):
        from PIL import Image
    try:
        with Image.open(io.BytesIO(data), formats=["PNG"]) as picture:
            pixels = np.asarray(picture.convert("L"))
    except (OSError, SyntaxError, ValueError) as error:  # Pillow has all of these
        raise DataError(f"{path} is not a whole PNG file; expected one of 32 x 32") from error
    if pixels.shape != (SIZE, SIZE):
        height, width = pixels.shape
        raise DataError(f"{path} has {width} x {height} pixels; expected {SIZE} x {SIZE}")
    return pixels


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
