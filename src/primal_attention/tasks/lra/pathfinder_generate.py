"""Pathfinder files by the benchmark's rules, from a seed."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...runs.files import write_bytes, write_json
from ..base import DataError
from ..jobs import Progress, check_least, work_off
from .pathfinder import read_metadata, read_png
from .snakes import CONTINUITY, CONTOUR, DISTRACTOR, draw
from .strokes import LENGTH, MARGIN, THICKNESS

CHUNK = 1_000  # pictures of a folder, and of a metadata file
PUBLISHED = {
    "cases": "200000", "classes": "0.5 each", "paddles": "14", "distractors": "at most 5",
}  # fmt: skip  # of the benchmark's files and rules, by the name of a statistic


@dataclass(frozen=True, kw_only=True)
class PathfinderSettings:
    """What the files hold; the default is the benchmark's number."""

    pictures: int = 200_000
    seed: int = 0

    def __post_init__(self) -> None:
        check_least(self, pictures=10, seed=0)


class Statistics(NamedTuple):
    """Of all pictures; brightness on the scale from 0 to 255."""

    cases: int
    classes: dict[str, float]  # shares
    paddles: int  # of a long snake
    distractors: float  # mean number; there is not always room for all
    brightness: float
    lit: float  # share of pixels that are not black


def generate(
    folder: Path,
    settings: PathfinderSettings | None = None,
    *,
    workers: int = 1,
    progress: Progress | None = None,
) -> Statistics:
    """Write pictures and metadata; an interrupted run resumes.

    `folder` is that of the level, `.../pathfinder32/curv_contour_length_14`. `progress` gets the
    chunks that are done and their number. The statistics go to `statistics.json` as well.
    """
    settings = settings or PathfinderSettings()
    folder = Path(folder)
    (folder / "metadata").mkdir(parents=True, exist_ok=True)
    _claim(folder, settings)
    chunks = -(-settings.pictures // CHUNK)
    missing = [number for number in range(chunks) if not _metadata(folder, number).is_file()]
    write = partial(_write_chunk, settings, folder, CHUNK)
    work_off(write, missing, total=chunks, workers=workers, progress=progress)
    result = statistics(folder, chunks)
    write_json(folder / "statistics.json", result._asdict())
    return result


def _claim(folder: Path, settings: PathfinderSettings) -> None:
    """Pictures of other settings are never mixed in."""
    path = folder / "settings.json"
    if path.is_file():
        known = json.loads(path.read_bytes())
        if known != asdict(settings):
            raise DataError(f"{folder} has pictures of {known}; expected those of {settings}")
    elif any((folder / "metadata").glob("*.npy")):
        raise DataError(f"{folder} has pictures that were not made here; expected an empty folder")
    else:
        write_json(path, asdict(settings))


def _metadata(folder: Path, number: int) -> Path:
    return folder / "metadata" / f"{number}.npy"  # text, in spite of its name


def _write_chunk(settings: PathfinderSettings, folder: Path, size: int, number: int) -> None:
    """Pictures first; the metadata file then says that they are all there."""
    rng = np.random.default_rng([settings.seed, number])
    place = f"imgs/{number}"
    (folder / place).mkdir(parents=True, exist_ok=True)
    lines = []
    for i in range(min(size, settings.pictures - number * size)):
        drawing = draw(rng)
        from PIL import Image  # `draw` has said if it is missing

        Image.fromarray(drawing.pixels).save(folder / place / f"sample_{i}.png")
        facts = (CONTINUITY, CONTOUR, DISTRACTOR, LENGTH, THICKNESS, MARGIN, 1)  # as published
        words = [place, f"sample_{i}.png", i, drawing.label, *facts, drawing.distractors]
        lines.append(" ".join(map(str, words)) + "\n")
    write_bytes(_metadata(folder, number), "".join(lines).encode())


def statistics(folder: Path, chunks: int, *, sampled: int = 2_000) -> Statistics:
    """Labels of all pictures, brightness of the first `sampled` ones."""
    files = [_metadata(folder, number) for number in range(chunks)]
    pictures = [picture for path in files for picture in read_metadata(path, folder)]
    drawn = [int(line.split()[-1]) for path in files for line in path.read_text().splitlines()]
    joined = sum(label for _, label in pictures) / len(pictures)
    pixels = np.stack([read_png(path.read_bytes(), path) for path, _ in pictures[:sampled]])
    return Statistics(
        cases=len(pictures),
        classes={"apart": round(1 - joined, 4), "joined": round(joined, 4)},
        paddles=CONTOUR,
        distractors=round(sum(drawn) / len(drawn), 3),
        brightness=round(float(pixels.mean()), 2),
        lit=round(float((pixels > 0).mean()), 4),
    )
