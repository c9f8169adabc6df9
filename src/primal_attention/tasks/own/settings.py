"""The settings of a run on one's own data: where it lies, and what its columns are."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from ..base import DataError
from ..classification.settings import RunConfig
from ..settings import Rule, setting

TEXT_OR_NONE: Rule = (lambda v: v is None or isinstance(v, str), "a text or None")
WHERE = ("data", "test", "target", "id", "time")


@dataclass(frozen=True, kw_only=True)
class OwnConfig(RunConfig):
    """The settings of `RunConfig`, and the data: a file or a folder for training, and for the test
    set, if it is not there as well; `target`, `id` and `time` are columns of csv files."""

    EXAMPLE: ClassVar[str] = "own/classes"
    RULES: ClassVar[Mapping[str, Rule]] = {**RunConfig.RULES, **dict.fromkeys(WHERE, TEXT_OR_NONE)}

    data: str | None = setting(
        "Data", None, "Train on this: .csv, .npz, .ts, a folder of files or of images."
    )
    test: str | None = setting("Data", None, "A file or folder with the test set.")
    target: str | None = setting(
        "Data", None, "Column to be learned, classes or numbers; for rl/...: the return to ask for."
    )
    id: str | None = setting(
        "Data", None, "Column that says which rows are one series, or (table/...) names them."
    )
    time: str | None = setting("Data", None, "Column that orders the rows of a series.")

    def validate(self) -> None:
        if self.data is None:
            raise ValueError(
                f"data is None; expected a file or a folder for the task {self.task!r}"
            )
        super().validate()

    def resolved(self) -> Self:
        """With full paths, so that a run can be resumed from anywhere."""
        paths: dict[str, Any] = {
            name: str(Path(value).expanduser().resolve())
            for name in ("data", "test")
            if (value := getattr(self, name)) is not None
        }
        return dataclasses.replace(super().resolved(), **paths)

    def where(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in WHERE if getattr(self, name) is not None}

    def stem(self) -> str:
        from ...runs.folder import folder_stem

        name = Path(self.data or "data").name.partition(".")[0]
        return folder_stem(name, self.attention)


def task_of(where: Mapping[str, Any]) -> tuple[str, str]:
    """The task for data that is named as `OwnConfig` names it, and a sentence on what it is."""
    from .parts import Parts, image_folder

    if "data" not in where:
        raise DataError("there is no TASK and no --data; expected one of them")
    path = Path(where["data"]).expanduser()
    if (folder := image_folder(path)) is not None:
        return "own/images", f"{folder} has images, so own/images"
    found = Parts.of(where).read("train")
    from .targets import are_numbers, described

    kind = "own/values" if are_numbers(found.targets) else "own/classes"
    lengths = [len(case.series) for case in found.cases]
    short, long = min(lengths), max(lengths)
    length = f"length {long}" if short == long else f"lengths {short} to {long}"
    channels = f"{found.channels} channel" + "s" * (found.channels > 1)
    facts = f"{len(found.cases):,} series, {channels}, {length}, {described(found.targets)}"
    said = f"{path}: {facts} ({kind})"
    if found.columns is not None and found.columns.wide:
        said += "; a row is read as a series, for a table of rows name the task table/csv"
    return kind, said
