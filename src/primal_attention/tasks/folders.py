"""Where data lies: a folder that is given, else the one in the environment, else the package."""

from __future__ import annotations

import os
from pathlib import Path

from .base import DataError

ENVIRONMENT = "PRIMAL_ATTENTION_DATA"
CACHE = "PRIMAL_ATTENTION_CACHE"


def data_folder(data_dir: Path | str | None = None) -> Path | None:
    """The user's data folder: `data_dir` if given, else the environment's, else None.

    A folder that is named but does not exist is an error: a typing mistake must not end in other
    data than meant.
    """
    if data_dir is not None:
        return _existing(data_dir, "the data folder")
    from_environment = os.environ.get(ENVIRONMENT)
    if from_environment:
        return _existing(from_environment, f"the data folder in {ENVIRONMENT}")
    return None


def cache_folder() -> Path:
    """Where what is made of data is kept: the folder in the environment, else the user's cache."""
    given = os.environ.get(CACHE)
    if given:
        return Path(given).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "primal-attention"


def visible(path: Path, root: Path) -> bool:
    """Whether no part of a path below a root is hidden."""
    return not any(part.startswith(".") for part in path.relative_to(root).parts)


def _existing(folder: Path | str, what: str) -> Path:
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise DataError(f"{what} is {str(folder)!r}; expected an existing folder")
    return path
