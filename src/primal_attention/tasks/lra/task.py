"""A task of the arena: where its files lie, and its sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..classification.settings import RunConfig
from ..folders import data_folder
from ..placed import PlacedTask, name_the_folder, named_folder
from ..recipes import tuned
from ..tokens import PairData, TokenData, TokenSet
from .recipes import PLANS, Plan
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

    def to_dict(self) -> None:
        """New texts would need the tokens of their benchmark."""


@dataclass(frozen=True, kw_only=True)
class ArenaTask(PlacedTask[TokenSet]):
    """Classify token sequences, or pairs of them; the metric is accuracy.

    Sequences are cut to `max_length`; the benchmark pads them all to `padded_length`.
    """

    splits: tuple[str, ...] = ("train", "validation", "test")
    classes: tuple[str, ...]
    vocabulary: int
    max_length: int
    padded_length: int
    pairs: bool = False
    hint: str  # how to get the files, where {folder} is the data folder
    find: Callable[[Path], dict[str, Path]]
    source: Callable[[Path, str], Source]

    @property
    def plan(self) -> Plan:
        """Batch, steps and warm-up of the paper."""
        return PLANS[self.name.removeprefix("lra/")]

    def places(self, data_dir: Path | str | None) -> dict[str, Path]:
        folder = data_folder(data_dir)
        if folder is None:
            return {}
        # all splits from one place: never the training set of one copy, the test set of another
        return next((found for root in _ROOTS if (found := self.find(folder / root))), {})

    def read(self, place: Path, split: str) -> TokenSet:
        """From its token store, which the first time is built."""
        return open_set(self.source(place, split), self.classes, self.vocabulary)

    def how_to_get(self, data_dir: Path | str | None, missing: Sequence[str]) -> str:
        return self.hint.format(folder=named_folder(data_dir)) + name_the_folder(data_dir)

    def reader(self, train: TokenSet, settings: RunConfig) -> ArenaReader:
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

    def recipe(self, name: str, attention: tuple[str, ...]) -> dict[str, Any]:
        fields = super().recipe(name, attention)
        own = self.plan.primalformer, self.plan.primal_trans
        return fields | tuned(*own, attention) if name == "paper" else fields
