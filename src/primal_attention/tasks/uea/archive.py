"""The sets by name: what they are, where they lie, and whether what lies there is really them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..base import DataError
from ..folders import data_folder
from ..placed import name_the_folder, named_folder
from ..series import Floats, SeriesSet

SPLITS = ("train", "test")
EMBEDDED = ("BasicMotions", "JapaneseVowels")
_SAME_CASES = 0.1  # share of common cases from which two splits are not two splits


class Range(NamedTuple):
    shortest: int
    longest: int

    def __str__(self) -> str:
        return f"{self.shortest}" if self.shortest == self.longest else f"{self.shortest}-{self[1]}"


@dataclass(frozen=True)
class Facts:
    """What the archive says about a set; the pairs are for train and test."""

    about: str
    cases: tuple[int, int]
    channels: int
    lengths: tuple[Range, Range]
    classes: int

    def __str__(self) -> str:
        low, high = zip(*self.lengths, strict=True)
        return (
            f"{self.cases[0]}/{self.cases[1]} cases, {self.channels} channels, "
            f"length {Range(min(low), max(high))}, {self.classes} classes"
        )


def _all(length: int) -> tuple[Range, Range]:
    return Range(length, length), Range(length, length)


# fmt: off
ARCHIVE: Mapping[str, Facts] = {
    "BasicMotions": Facts("activity from a smart watch", (40, 40), 6, _all(100), 4),
    "EthanolConcentration": Facts("ethanol in whisky from spectra", (261, 263), 3, _all(1751), 4),
    "FaceDetection": Facts("face or scrambled picture, from MEG", (5890, 3524), 144, _all(62), 2),
    "Handwriting": Facts("letter from a smart watch", (150, 850), 3, _all(152), 26),
    "Heartbeat": Facts("normal or abnormal heart sound", (204, 205), 61, _all(405), 2),
    "JapaneseVowels": Facts(
        "speaker of two vowels", (270, 370), 12, (Range(7, 26), Range(7, 29)), 9
    ),
    "PEMS-SF": Facts("day of the week from road traffic", (267, 173), 963, _all(144), 7),
    "SelfRegulationSCP1": Facts("cursor up or down, from EEG", (268, 293), 6, _all(896), 2),
    "SelfRegulationSCP2": Facts("cursor up or down, from EEG", (200, 180), 7, _all(1152), 2),
    "SpokenArabicDigits": Facts("spoken digit", (6599, 2199), 13, (Range(4, 93), Range(7, 83)), 10),
    "UWaveGestureLibrary": Facts("gesture from an accelerometer", (120, 320), 3, _all(315), 8),
}
# fmt: on


def find_splits(name: str, data_dir: Path | str | None = None) -> dict[str, Path | Traversable]:
    """Where the splits of a set lie: in the data folder, or else in the package."""
    folder = data_folder(data_dir)
    roots: list[Path | Traversable] = [] if folder is None else [folder / "uea", folder]
    if name in EMBEDDED:
        roots.append(files(__package__) / "embedded")
    for root in roots:
        # all splits from one place: never the training set of one copy, the test set of another
        found = {split: place for split in SPLITS if (place := _find(root / name, name, split))}
        if found:
            return found
    return {}


def how_to_get(name: str, data_dir: Path | str | None, splits: Sequence[str]) -> str:
    """One sentence: from where to get a set, and where to put it."""
    root = named_folder(data_dir)
    paths = " and ".join(f"{root}/uea/{name}/{_file(name, s)}" for s in splits)
    return (
        f"expected {paths} (or .ts.gz): get {name}.zip from timeseriesclassification.com, "
        f"unzip it there{name_the_folder(data_dir)}"
    )


def check_facts(s: SeriesSet, facts: Facts, split: str) -> None:
    """Raise unless a split is what the archive says that it is; the message has all differences."""
    i = SPLITS.index(split)
    lengths = Range(int(s.lengths.min()), int(s.lengths.max()))
    compared = {
        "cases": (len(s), facts.cases[i]),
        "channels": (s.channels, facts.channels),
        "lengths": (lengths, facts.lengths[i]),
        "classes": (len(s.classes), facts.classes),
        "classes with cases": (len(np.unique(s.labels)), facts.classes),
    }
    wrong = [
        f"{found} {what} (expected {expected})"
        for what, (found, expected) in compared.items()
        if found != expected
    ]
    if wrong:
        raise DataError(f"{s.name} is not the archive's: it has {', '.join(wrong)}")


def refuse_same_cases(train: SeriesSet, test: SeriesSet) -> None:
    """Raise if the two sets name their classes differently, or share cases."""
    if train.classes != test.classes:
        raise DataError(
            f"{train.name} has the classes {', '.join(train.classes)} and {test.name} has "
            f"{', '.join(test.classes)}; expected the same in the same order"
        )
    _refuse_common(test, train)
    _refuse_common(train, test)


def _refuse_common(s: SeriesSet, other: SeriesSet) -> None:
    theirs = set(map(_fingerprint, other.series))
    common = sum(_fingerprint(x) in theirs for x in s.series)
    if common > _SAME_CASES * len(s):
        raise DataError(
            f"{common} of the {len(s)} cases of {s.name} are in {other.name} as well; expected "
            "a test set apart from the training set"
        )


def _fingerprint(x: Floats) -> int:
    return hash((x.shape, (x + 0.0).tobytes()))  # + 0.0 makes -0.0 the same as 0.0


def _file(name: str, split: str) -> str:
    return f"{name}_{split.upper()}.ts"


def _find(folder: Path | Traversable, name: str, split: str) -> Path | Traversable | None:
    for ending in ("", ".gz"):
        place = folder / (_file(name, split) + ending)
        if place.is_file():
            return place
    return None
