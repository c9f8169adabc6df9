"""The settings of a run that learns from the rows of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from ..base import DataError
from ..files import TEXT_OR_NONE, FileConfig, SmallConfig
from ..settings import EngineConfig, Rule, is_number, least, of_training, other, setting

of_tables = partial(setting, "Tasks table/...")
COLUMNS = ("target", "id", "categorical")
FIND_OUT = "table/csv"


@dataclass(frozen=True, kw_only=True)
class TableConfig(SmallConfig):
    """The settings of one run: those of `PrimalTableClassifier`, by the names of the engine.
    `target`, `id` and `categorical` are columns of the file. In a step `batch_size` rows are asked,
    and up to `max_context` others, by chance, are their context. A share `validation_fraction` of
    the rows chooses the epoch by its loss and joins the context afterwards; the test set is read
    once. All layers have one attention. `row_context` is `context` of the estimator.
    """

    EXAMPLE: ClassVar[str] = FIND_OUT
    CHOICES: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **EngineConfig.CHOICES,
        "activation": ("gelu",),
        "precision": ("32-true", "64-true"),
        "row_context": ("set", "additive"),
    }
    RULES: ClassVar[Mapping[str, Rule]] = {
        **FileConfig.RULES,
        **dict.fromkeys(COLUMNS, TEXT_OR_NONE),
        **dict.fromkeys(("max_context", "frequencies"), least(1)),
        "eta": (lambda v: v == 0, "0: a context that is summed up has no KSVD loss"),
        "validation_fraction": (lambda v: is_number(v) and 0 < v < 1, "a number in (0, 1)"),
    }

    epochs: int = other(EngineConfig, "epochs", 20)
    epoch_steps: int | None = other(EngineConfig, "epoch_steps", 20)
    batch_size: int = other(EngineConfig, "batch_size", 256)
    lr: float = other(EngineConfig, "lr", 2e-3)
    weight_decay: float = other(EngineConfig, "weight_decay", 0.05)
    clip: float | None = other(EngineConfig, "clip", 1.0)
    schedule: str = other(EngineConfig, "schedule", "cosine")
    warmup_steps: int = other(EngineConfig, "warmup_steps", 40)

    target: str | None = setting("Data", None, "Column to be learned, classes or numbers.")
    id: str | None = setting("Data", None, "Column that names the rows.")
    categorical: str | None = setting(
        "Data", None, "Columns of numbers that are categories, between commas (table/...)."
    )
    row_context: str = of_tables(
        "set", "Context rows attend to each other (set), or their sums add up exactly (additive)."
    )
    max_context: int = of_tables(1024, "Context rows of a step.")
    frequencies: int = of_tables(8, "Learned waves of every number.")
    validation_fraction: float = of_training(0.15, "Share of the rows that chooses the epoch.")

    def validate(self) -> None:
        if self.task == FIND_OUT:
            raise ValueError(
                f"task is {FIND_OUT!r}; expected table/classes or table/values: `settings_for` "
                "finds out which"
            )
        if self.data is None:
            raise ValueError(f"data is None; expected a file for the task {self.task!r}")
        super().validate()

    def check_settings(self) -> None:
        from ...attention import attention_info

        super().check_settings()
        if len(set(self.attention)) > 1:
            raise ValueError(
                f"attention is {', '.join(self.attention)}; expected one name: the layers of a "
                "table are alike"
            )
        info = attention_info(self.attention[0])
        if not info.cross or not info.any_length:
            raise ValueError(
                f"attention {info.name!r} cannot attend to the rows of a context; expected one "
                "with the fact cross in `primal list`, for any length"
            )

    def where(self) -> dict[str, Any]:
        columns = {name: getattr(self, name) for name in COLUMNS}
        return super().where() | {n: text for n, text in columns.items() if text is not None}

    def stem(self) -> str:
        from ...runs.folder import folder_stem

        return folder_stem(Path(self.data or "table").name.partition(".")[0], self.attention)

    def model_options(self) -> dict[str, Any]:
        """Those of `TableNet`, and of the estimators of tables."""
        names = ("width", "heads", "feedforward", "dropout", "frequencies")
        name = self.attention[0]
        return {one: getattr(self, one) for one in names} | {
            "context": self.row_context,
            "attention": name,
            "options": self.attention_options().get(name),
            "layers": len(self.attention),
        }


def categories_of(given: Mapping[str, Any]) -> tuple[str, ...]:
    """The columns that `categorical` names."""
    text = given.get("categorical") or ""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def file_of(given: Mapping[str, Any]) -> Path:
    """The file that `data` names, which is there."""
    if given.get("data") is None:
        raise DataError("there is no table; expected --data FILE, a csv file")
    path = Path(given["data"]).expanduser()
    if not path.is_file():
        raise DataError(f"{path} is not there; expected a csv file")
    return path
