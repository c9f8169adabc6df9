"""Files that are either whole or not there, and errors about them that are one sentence."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .errors import RunError

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


def write_texts(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    """Write files, {name: text}, into a folder, which is made if need be; a RunError says why it
    cannot be done."""
    with explained(f"write into {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            write_bytes(folder / name, text.encode())
    return [folder / name for name in texts]


def write_json(path: Path, value: Any) -> None:
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    write_bytes(path, (text + "\n").encode())


def read_json(path: Path) -> Any:
    """The value in a JSON file; a RunError says what is wrong with it."""
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise RunError(f"cannot read {path}: {_reason(error)}") from error
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path} is not JSON: {error}") from error


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file."""
    found = read_json(path)
    if not isinstance(found, dict):
        raise RunError(f"{path} holds a {type(found).__name__}; expected a JSON object")
    return found


def sync_folder(path: Path) -> None:
    """Make the names in a folder last."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_temporary(folder: Path) -> None:
    """Remove what writers that were killed left in a folder."""
    with explained(f"read {folder}"):
        found = list(folder.glob(f"{TEMPORARY}*"))
    for path in found:
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
