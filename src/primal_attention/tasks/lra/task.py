"""A task of the arena: where its files lie, and its sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...names import unknown
from ..base import DataError, DataStatus, Task
from ..examples import Settings
from ..folders import ENVIRONMENT, data_folder
from ..tokens import PairData, TokenData, TokenSet
from .recipes import PLANS, Plan, tuned
from .store import Source, open_set

_ROOTS = ("lra", "lra_release", "lra_release/lra_release", ".")  # as the benchmark is unpacked


@dataclass(frozen=True)
class ArenaReader:
    """Sets as batches: sequences are cut; with `pad_to` all batches have this length."""

    shape: dict[str, int]
    cut: int
    pad_to: int | None

    def __call__(self, part: TokenSet, *, training: bool = False) -> TokenData:
        kind = PairData if self.shape["pairs"] else TokenData
        return kind(part, max_length=self.cut, pad_to=self.pad_to)


@dataclass(frozen=True, kw_only=True)
class ArenaTask(Task):
    """Classify token sequences, or pairs of them; the metric is accuracy.

    Sequences are cut to `max_length`; the benchmark pads them all to `padded_length`.
    """

    facts: str
    classes: tuple[str, ...]
    vocabulary: int
    max_length: int
    padded_length: int
    pairs: bool
    how_to_get: str  # where {folder} is the data folder
    find: Callable[[Path], dict[str, Path]]
    source: Callable[[Path, str], Source]

    @property
    def plan(self) -> Plan:
        """Batch, steps and warm-up of the paper."""
        return PLANS[self._short]

    @property
    def _short(self) -> str:
        return self.name.removeprefix("lra/")

    def load(
        self, data_dir: Path | str | None = None, *, splits: Sequence[str] | None = None
    ) -> dict[str, TokenSet]:
        """The splits asked for, else all. The first time files are read into a token store."""
        wanted = self.splits if splits is None else splits
        for split in wanted:
            if split not in self.splits:
                raise ValueError(unknown(f"split of {self.name}:", split, self.splits))
        places = self._places(data_dir)
        missing = [split for split in wanted if split not in places]
        if missing:
            raise DataError(
                f"the {missing[0]} split of {self.name} is not here; {self._how(data_dir)}"
            )
        sources = {split: self.source(places[split], split) for split in wanted}
        return {s: open_set(found, self.classes, self.vocabulary) for s, found in sources.items()}

    def reader(self, train: TokenSet, settings: Settings) -> ArenaReader:
        """The benchmark's lengths, or the one in the settings; batching "fixed" pads to them."""
        given = settings.max_length
        cut = self.max_length if given is None else given
        padded = self.padded_length if given is None else given
        pad_to = padded if settings.batching == "fixed" else None
        shape = {
            "classes": len(self.classes),
            "vocabulary": self.vocabulary,
            "max_length": cut if pad_to is None else pad_to,
            "pairs": self.pairs,
        }
        return ArenaReader(shape, cut, pad_to)

    def status(self, data_dir: Path | str | None = None) -> DataStatus:
        places = self._places(data_dir)
        missing = tuple(split for split in self.splits if split not in places)
        return DataStatus(
            task=self.name,
            facts=self.facts,
            places={split: str(place) for split, place in places.items()},
            missing=missing,
            how_to_get=self._how(data_dir) if missing else "",
        )

    def recipe(self, name: str, attention: tuple[str, ...]) -> dict[str, Any]:
        fields = super().recipe(name, attention)
        return fields | tuned(self._short, attention) if name == "paper" else fields

    def _places(self, data_dir: Path | str | None) -> dict[str, Path]:
        folder = data_folder(data_dir)
        if folder is None:
            return {}
        # all splits from one place: never the training set of one copy, the test set of another
        return next((found for root in _ROOTS if (found := self.find(folder / root))), {})

    def _how(self, data_dir: Path | str | None) -> str:
        folder = data_folder(data_dir)
        root = "<data folder>" if folder is None else str(folder)
        tell = f"; give the folder with --data-dir or {ENVIRONMENT}" if folder is None else ""
        return self.how_to_get.format(folder=root) + tell
