"""Files that are either whole or not there: written beside their place and renamed."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TEMPORARY = ".tmp-"  # what a writer that was killed leaves behind begins so


def temporary(path: Path) -> Path:
    """A name beside `path` that nobody else uses."""
    return path.with_name(f"{TEMPORARY}{path.name}-{secrets.token_hex(4)}")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Gives a place beside `path` to write a file to, which then takes the place of `path`: a crash
    cannot leave it half written, and an error leaves what was there before."""
    beside = temporary(path)
    try:
        yield beside
        with open(beside, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def write_bytes(path: Path, data: bytes) -> None:
    with replacing(path) as beside:
        beside.write_bytes(data)


def write_json(path: Path, value: Any) -> None:
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    write_bytes(path, (text + "\n").encode())
