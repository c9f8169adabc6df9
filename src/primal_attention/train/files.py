"""The files of a run: what goes wrong with them is one sentence."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..files import TEMPORARY, temporary, write_bytes, write_json
from .errors import RunError

__all__ = [
    "explained",
    "read_json",
    "remove_temporary",
    "sync_folder",
    "temporary",
    "write_bytes",
    "write_json",
]


def read_json(path: Path) -> Any:
    """The value in a JSON file; a RunError says what is wrong with it."""
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise RunError(f"cannot read {path}: {_reason(error)}") from error
    except ValueError as error:
        raise RunError(f"{path} is not JSON: {error}") from error


def sync_folder(path: Path) -> None:
    """Make the names in a folder last."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_temporary(folder: Path) -> None:
    """Remove what writers that were killed left in a folder."""
    for path in folder.glob(f"{TEMPORARY}*"):
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


@contextmanager
def explained(action: str, consequence: str = "") -> Iterator[None]:
    """Turn an OSError, such as a full disk, into one sentence: "cannot <action>: <why>"."""
    try:
        yield
    except OSError as error:
        raise RunError(f"cannot {action}: {_reason(error)}{consequence}") from error


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
