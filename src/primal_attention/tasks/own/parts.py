"""Where the splits of one's own data lie, and their cases, read once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from ..base import DataError
from ..folders import visible
from ..images.folder import ENDINGS as IMAGES
from .columns import Columns
from .files import ENDINGS, Cases, read_cases

TEST_NAMES = ("test", "val", "valid", "validation")


@dataclass(frozen=True)
class Parts:
    """The places of the splits, and what the columns of tables are."""

    train: Path
    test: Path | None
    columns: Columns

    @classmethod
    def of(cls, where: Mapping[str, Any]) -> Self:
        """From settings `data`, `test`, `target`, `id` and `time`."""
        train, test = find(Path(where["data"]).expanduser())
        if where.get("test") is not None:
            test = _existing(Path(where["test"]).expanduser())
        columns = Columns(where.get("target"), where.get("id"), where.get("time"))
        return cls(train, test, columns)

    def read(self, split: str) -> Cases:
        """The cases of a split; the test set is read as the training set was."""
        train = _read(self.train, self.columns, _state(self.train))
        if split == "train":
            return train
        if self.test is None:
            raise DataError(f"there is no test set beside {self.train}; expected --test")
        columns = train.columns or self.columns
        if self.test.is_dir() and train.names:
            columns = replace(columns, channels=train.names)
        found = read_cases(self.test, columns)
        if found.channels != train.channels:
            raise DataError(
                f"{self.test} has {found.channels} channels; expected {train.channels}, as "
                f"{self.train} has"
            )
        return found


def find(path: Path) -> tuple[Path, Path | None]:
    """Training set and test set: a file alone, or a folder with both, or a folder of classes."""
    _existing(path)
    if path.is_file():
        return path, None
    inside = {one.name.lower(): one for one in path.iterdir() if visible(one, path)}
    tests = [inside[name] for name in TEST_NAMES if name in inside and inside[name].is_dir()]
    if "train" in inside and inside["train"].is_dir():
        return inside["train"], tests[0] if tests else None
    files = {n: p for n, p in inside.items() if p.is_file() and n.endswith(ENDINGS)}
    train = [p for n, p in files.items() if n.partition(".")[0].endswith("train")]
    test = [p for n, p in files.items() if n.partition(".")[0].endswith(TEST_NAMES)]
    if len(train) == 1 and len(test) <= 1:
        return train[0], test[0] if test else None
    if not any(one.is_dir() for one in inside.values()):
        names = ", ".join(sorted(inside)[:8]) or "nothing"
        raise DataError(
            f"{path} holds {names}; expected a folder for each class, train/ and test/, or a file "
            "whose name ends with train"
        )
    return path, None


def image_folder(path: Path) -> Path | None:
    """The folder with the training images, if that is what the path holds."""
    train, _ = find(path)
    if train.is_file():
        return None
    for one in sorted(train.iterdir()):
        if one.is_dir() and any(file.suffix.lower() in IMAGES for file in one.iterdir()):
            return train
    return None


def _existing(path: Path) -> Path:
    if not path.exists():
        raise DataError(f"{path} is not there; expected a file or a folder")
    return path


def _state(path: Path) -> tuple[int, int]:
    """Changes when a file does, or a folder gets other files."""
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    facts = [file.stat() for file in files]
    return sum(f.st_size for f in facts), max((f.st_mtime_ns for f in facts), default=0)


@lru_cache(maxsize=1)
def _read(path: Path, columns: Columns, state: tuple[int, int]) -> Cases:
    """Read once while the file stays the same: to see what it is, and to train on it."""
    return read_cases(path, columns)
