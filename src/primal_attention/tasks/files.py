"""Settings that name the files of a run, `--data FILE` and `--test FILE`, and what files say."""

from __future__ import annotations

import dataclasses
import gzip
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from .base import DataError
from .settings import EngineConfig, Rule, other, setting

TEXT_OR_NONE: Rule = (lambda v: v is None or isinstance(v, str), "a text or None")
FILES = ("data", "test")


@dataclass(frozen=True, kw_only=True)
class FileConfig(EngineConfig):
    """The settings of a run whose data may be a file that is named."""

    RULES: ClassVar[Mapping[str, Rule]] = {
        **EngineConfig.RULES,
        **dict.fromkeys(FILES, TEXT_OR_NONE),
    }

    data: str | None = setting("Data", None, "Train on this file.")
    test: str | None = setting("Data", None, "A file with the test set.")

    def resolved(self) -> Self:
        """With full paths, so that a run can be resumed from anywhere."""
        paths: dict[str, Any] = {
            name: str(Path(value).expanduser().resolve())
            for name in FILES
            if (value := getattr(self, name)) is not None
        }
        return dataclasses.replace(super().resolved(), **paths)

    def where(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in FILES if getattr(self, name) is not None}


@dataclass(frozen=True, kw_only=True)
class SmallConfig(FileConfig):
    """Likewise, with a small model of tied layers, which keep sums."""

    weights: str = other(EngineConfig, "weights", "tied")
    feature_map: str = other(EngineConfig, "feature_map", "elu")
    rank: int = other(EngineConfig, "rank", 8)
    eta: float = other(EngineConfig, "eta", 0.0)

    width: int = other(EngineConfig, "width", 64)
    heads: int = other(EngineConfig, "heads", 4)
    feedforward: int = other(EngineConfig, "feedforward", 128)


def read_utf8(path: Path) -> str:
    """The text of a file, perhaps compressed with gzip."""
    try:
        content = path.read_bytes()
        return (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path}: {error}") from error


def named_files(settings: FileConfig) -> dict[str, Path]:
    """The files by split; a DataError if one is not there."""
    found = {}
    for split, name in (("train", settings.data), ("test", settings.test)):
        if name is not None:
            found[split] = Path(name).expanduser()
            if not found[split].is_file():
                raise DataError(f"{name} is not there; expected a file")
    return found
