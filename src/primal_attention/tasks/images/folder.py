"""Folders of images, train/<class>/*.jpg and val/<class>/*.jpg, decoded once into stores.

<cache>/images/<split>/<key>/images.npy    (n, S, S, 3) uint8, mapped into memory in training
                             progress.json checksums of the chunks that are in it
                             store.json    written last, so it says that the store is whole

The key follows from the files' names, sizes and times. A build that was killed resumes with
the first chunk that is missing. An image is stored as its central square, resized to S x S.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...runs.files import write_json
from ..base import DataError
from ..folders import cache_folder
from ..series import Integers
from ..stores import WHOLE, building, damaged, tell
from .randaugment import pillow
from .sets import ImageSet, Pixels

FOLDERS = {"train": "train", "test": "val"}  # of the splits
ENDINGS = (".jpg", ".jpeg", ".png")
# of images that come from elsewhere: other formats may start programs, and a small file can hold a
# huge image
FORMATS, PIXELS = ("JPEG", "PNG"), 50_000_000
CHUNK = 512
_FORMAT = 1  # raise it when the decoding changes: old stores are then built again


@dataclass(frozen=True)
class Listing:
    """The files of a split, class by class."""

    root: Path
    files: tuple[str, ...]  # relative to the root, sorted within a class
    labels: Integers  # (files,)
    classes: tuple[str, ...]  # names of folders, sorted

    def key(self, side: int) -> str:
        """A hash of what decides the content of a store."""
        digest = hashlib.sha256(repr((_FORMAT, side, str(self.root.resolve()))).encode())
        for name in self.files:
            facts = (self.root / name).stat()
            digest.update(repr((name, facts.st_size, facts.st_mtime_ns)).encode())
        return digest.hexdigest()[:16]


def find_root(folder: Path) -> Path | None:
    """The folder that has train/ or val/: the one that is given, or its imagenet100/."""
    for root in (folder, folder / "imagenet100"):
        if any((root / name).is_dir() for name in FOLDERS.values()):
            return root
    return None


def list_split(root: Path, split: str) -> Listing:
    """The images of a split; every class must have some."""
    check_classes(root)
    return list_classes(root / FOLDERS[split])


def list_classes(place: Path) -> Listing:
    """The images of a folder that has a folder for every class."""
    classes = _class_folders(place)
    files: list[str] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        with os.scandir(place / name) as entries:
            names = (e.name for e in entries if not e.name.startswith("."))
            found = sorted(n for n in names if n.lower().endswith(ENDINGS))
        if not found:
            raise DataError(f"{place / name} has no images; expected {', '.join(ENDINGS)} files")
        files += [f"{name}/{file}" for file in found]
        labels += [label] * len(found)
    return Listing(place, tuple(files), np.array(labels, dtype=np.int64), classes)


def check_classes(root: Path) -> None:
    """train/ and val/ must have the same classes, or one of them be absent."""
    train, val = (root / name for name in FOLDERS.values())
    if not (train.is_dir() and val.is_dir()):
        return
    expected, found = _class_folders(train), _class_folders(val)
    for name in expected:
        if name not in found:
            raise DataError(f"{val} lacks the class {name!r}; expected the classes of {train}")
    for name in found:
        if name not in expected:
            raise DataError(f"{val} has a class {name!r}; expected the classes of {train} alone")


def _class_folders(place: Path) -> tuple[str, ...]:
    if not place.is_dir():
        raise DataError(f"{place} is not there; expected a folder with a folder for every class")
    with os.scandir(place) as entries:
        found = tuple(sorted(e.name for e in entries if e.is_dir() and not e.name.startswith(".")))
    if not found:
        raise DataError(f"{place} is empty; expected a folder with images for every class")
    return found


def open_split(root: Path, split: str, side: int, *, name: str) -> ImageSet:
    """The images of a split from its store; the first time the store is built."""
    return open_listing(list_split(root, split), side, split, name=name)


def open_listing(listing: Listing, side: int, split: str, *, name: str) -> ImageSet:
    """Likewise of files that are listed."""
    store = cache_folder() / "images" / split / listing.key(side)
    if not (store / WHOLE).is_file():
        build(listing, store, side)
    try:
        images = np.lib.format.open_memmap(store / "images.npy", mode="r")
        checksum = json.loads((store / WHOLE).read_bytes())["checksum"]
    except (OSError, ValueError, KeyError) as error:
        raise damaged(store, error) from error
    if images.shape != (len(listing.files), side, side, 3) or images.dtype != np.uint8:
        raise damaged(store, f"it has images {images.shape}")
    return ImageSet(f"{name} {split}", images, listing.labels, listing.classes, checksum=checksum)


def build(listing: Listing, store: Path, side: int, *, chunk: int = CHUNK) -> None:
    """Decode all images of a listing into a store; listeners are notified."""
    with building(store, str(listing.root), len(listing.files)) as empty:
        if empty:
            _fill(listing, store, side, chunk)


def _fill(listing: Listing, store: Path, side: int, chunk: int) -> None:
    shape = (len(listing.files), side, side, 3)
    done = _chunks_done(store, chunk)
    path = store / "images.npy"
    with open(path, "r+b" if done else "wb") as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        start = file.tell()
        with ThreadPoolExecutor(min(32, os.cpu_count() or 1)) as threads:
            for first in range(len(done) * chunk, len(listing.files), chunk):
                paths = [listing.root / name for name in listing.files[first : first + chunk]]
                images = np.stack(list(threads.map(functools.partial(decode, side=side), paths)))
                file.seek(start + first * side * side * 3)
                file.write(images.data)
                file.flush()
                os.fsync(file.fileno())
                done.append(hashlib.sha256(images.data).hexdigest())
                write_json(store / "progress.json", {"chunk": chunk, "sums": done})
                tell(str(listing.root), first + len(images), len(listing.files))
    checksum = hashlib.sha256(repr((shape, chunk, done)).encode()).hexdigest()
    write_json(store / WHOLE, {"checksum": checksum, "shape": shape})
    (store / "progress.json").unlink()


def _chunks_done(store: Path, chunk: int) -> list[str]:
    try:
        stored = json.loads((store / "progress.json").read_bytes())
    except (FileNotFoundError, ValueError):
        return []
    if not (store / "images.npy").is_file():
        return []
    return list(stored["sums"]) if stored["chunk"] == chunk else []


def sizes_of(listing: Listing, most: int = 100) -> list[int]:
    """The smaller side of some images, evenly spaced."""
    kind, step = pillow(), -(-len(listing.files) // most)
    found = []
    for name in listing.files[::step]:
        try:
            with kind.open(listing.root / name) as image:
                found.append(min(image.size))
        except (OSError, SyntaxError, ValueError, kind.DecompressionBombError) as error:
            raise DataError(
                f"{listing.root / name} cannot be read as an image ({error})"
            ) from error
    return found


def decode(path: Path, side: int) -> Pixels:
    """The central square of an image in RGB, resized to (side, side, 3)."""
    return _decoded(path, side, str(path))


def decode_bytes(content: bytes, side: int, name: str) -> Pixels:
    """Likewise of the content of a file that comes from elsewhere: of FORMATS, with PIXELS at
    most."""
    return _decoded(io.BytesIO(content), side, name, formats=FORMATS, most=PIXELS)


def _decoded(
    source: Path | io.BytesIO,
    side: int,
    name: str,
    *,
    formats: tuple[str, ...] | None = None,
    most: int | None = None,
) -> Pixels:
    kind = pillow()
    try:
        with kind.open(source, formats=formats) as image:
            if most is not None and image.width * image.height > most:
                raise DataError(
                    f"{name} has {image.width} x {image.height} pixels; expected at most {most:,}"
                )
            image.draft("RGB", (side, side))  # JPEG decodes to a half or a quarter where enough
            if image.mode in ("P", "PA", "LA"):
                image = image.convert("RGBA")  # palettes may hold transparency
            elif image.mode.startswith("I"):  # 16 bits of grey, which Pillow would cut off
                image = kind.fromarray((np.asarray(image) // 257).astype(np.uint8))
            rgb = image.convert("RGB")
    except DataError:
        raise
    except (OSError, SyntaxError, ValueError, kind.DecompressionBombError) as error:
        raise DataError(f"{name} cannot be read as an image ({error})") from error
    width, height = rgb.size
    edge = min(width, height)
    left, top = (width - edge) / 2, (height - edge) / 2
    box = (left, top, left + edge, top + edge)
    return np.asarray(rgb.resize((side, side), kind.Resampling.BICUBIC, box=box))
