"""ListOps files by the benchmark's rules, from a seed."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...runs.files import replacing, write_json
from ..base import DataError
from ..jobs import Progress, work_off
from .listops import CLOSE, FILES, FIRST_OPERATOR, HEADER, OPERATORS, depth, value
from .listops_trees import Ints, ListOpsSettings, draw

CHUNK = 500  # expressions of a file of work
PUBLISHED = {
    "cases": "96000 + 2000 + 2000", "length": "501 to 1999", "depth": "at most 10",
    "operators": "0.25 each",
}  # fmt: skip  # of the benchmark's files and rules, by the name of a statistic


class Statistics(NamedTuple):
    """Of all expressions together."""

    cases: int
    length: dict[str, float]  # least, mean, greatest
    depth: dict[str, float]
    operators: dict[str, float]  # shares
    classes: dict[str, float]  # shares


def generate(
    folder: Path,
    settings: ListOpsSettings | None = None,
    *,
    workers: int = 1,
    progress: Progress | None = None,
) -> Statistics:
    """Write `basic_{train,val,test}.tsv`; an interrupted run resumes.

    Every label is evaluated a second time, from the text's tokens by a stack. `progress` gets the
    chunks that are done and their number. The statistics go to `statistics.json` as well.
    """
    settings = settings or ListOpsSettings()
    chunks = -(-settings.total // CHUNK)
    # a folder of its own for each kind of file: chunks of other settings are never mixed in
    key = hashlib.sha256(repr(settings).encode()).hexdigest()[:12]
    parts = Path(folder) / f".listops-{key}"
    if not parts.is_dir():
        made = _made_before(Path(folder), settings)
        if made is not None:
            return made
    parts.mkdir(parents=True, exist_ok=True)
    missing = [number for number in range(chunks) if not _part(parts, number).is_file()]
    write = partial(_write_chunk, settings, parts, CHUNK)
    work_off(write, missing, total=chunks, workers=workers, progress=progress)
    return _join(Path(folder), settings, parts, chunks)


def _made_before(folder: Path, settings: ListOpsSettings) -> Statistics | None:
    """What `generate` made here with the same settings; other files are never written over."""
    present = [path for path in map(folder.joinpath, FILES.values()) if path.is_file()]
    if not present:
        return None
    record = folder / "statistics.json"
    known = json.loads(record.read_bytes()) if record.is_file() else {}
    if known.get("settings") != asdict(settings):
        raise DataError(f"{present[0]} is there and was not made with {settings}; remove it first")
    return Statistics(**known["statistics"])


def _part(parts: Path, number: int) -> Path:
    return parts / f"{number:05d}.npz"


def _write_chunk(settings: ListOpsSettings, parts: Path, size: int, number: int) -> None:
    drawn = draw(settings, number, min(size, settings.total - number * size))
    # length, depth, value, operators
    facts = np.zeros((len(drawn), 3 + len(OPERATORS)), dtype=np.int64)
    for row, (_, label, code) in zip(facts, drawn, strict=True):
        tokens = np.frombuffer(code, dtype=np.uint8)
        if value(tokens) != label:
            raise DataError(f"an expression has the label {label}; expected {value(tokens)}")
        row[:3] = len(tokens), depth(tokens), label
        row[3:] = np.bincount(tokens, minlength=CLOSE)[FIRST_OPERATOR:CLOSE]
    text = "".join(f"{source}\t{label}\n" for source, label, _ in drawn).encode()
    with replacing(_part(parts, number)) as beside, open(beside, "wb") as file:
        np.savez_compressed(file, facts=facts, text=np.frombuffer(text, dtype=np.uint8))


def _join(folder: Path, settings: ListOpsSettings, parts: Path, chunks: int) -> Statistics:
    """Chunks to the three files, and the chunks removed."""
    facts: list[Ints] = []
    seen: set[bytes] = set()
    lines = (line for number in range(chunks) for line in _lines(parts, number, facts))
    for split, name in FILES.items():
        with replacing(folder / name) as beside, open(beside, "wb") as file:
            file.write(HEADER + b"\n")
            for _, line in zip(range(getattr(settings, split)), lines, strict=False):
                digest = hashlib.blake2b(line, digest_size=12).digest()
                if digest in seen:
                    raise DataError(
                        f"an expression was drawn twice with {settings}; expected lengths at which "
                        "all are different"
                    )
                seen.add(digest)
                file.write(line)
    result = statistics(np.concatenate(facts))
    known = {"settings": asdict(settings), "statistics": result._asdict()}
    write_json(folder / "statistics.json", known)
    shutil.rmtree(parts)
    return result


def _lines(parts: Path, number: int, facts: list[Ints]) -> list[bytes]:
    with np.load(_part(parts, number), allow_pickle=False) as stored:
        facts.append(stored["facts"])
        text: bytes = stored["text"].tobytes()
        return text.splitlines(keepends=True)


def statistics(facts: Ints) -> Statistics:
    """Of rows (length, depth, value, number of each operator)."""

    def spread(column: Ints) -> dict[str, Any]:
        mean = round(float(column.mean()), 2)
        return {"least": int(column.min()), "mean": mean, "greatest": int(column.max())}

    def shares(counts: Ints, names: Sequence[str]) -> dict[str, float]:
        return {n: round(float(c / counts.sum()), 4) for n, c in zip(names, counts, strict=True)}

    return Statistics(
        len(facts), spread(facts[:, 0]), spread(facts[:, 1]),
        shares(facts[:, 3:].sum(0), OPERATORS),
        shares(np.bincount(facts[:, 2], minlength=10), "0123456789"),
    )  # fmt: skip
