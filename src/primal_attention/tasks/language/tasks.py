"""The tasks `lm/...`: WikiText-2, WikiText-103, and anybody's text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base import DataError
from ..files import named_files
from ..folders import data_folder
from ..placed import PlacedTask, name_the_folder, named_folder
from .settings import LanguageConfig

if TYPE_CHECKING:
    from .objective import Language

SPLITS = ("train", "validation", "test")
# As published with the authors' code, for softmax*5,primal: batches of 64 pieces of 512 tokens,
# 150,000 steps. Of Adam, the decay of second moments there is 0.98, here 0.999.
PAPER: dict[str, Any] = {
    "weights": "free", "feature_map": "cosine", "rank": 30, "eta": 0.1, "place": "sinusoidal",
    "width": 512, "heads": 8, "feedforward": 2048, "activation": "relu", "length": 512,
    "batch_size": 64, "epoch_steps": 1500, "epochs": 100, "optimizer": "adam", "lr": 1e-3,
    "schedule": "root", "warmup_steps": 6000, "clip": None,
}  # fmt: skip
HELD_OUT = 0.05  # of the lines of a text, for each of validation and test


@dataclass(frozen=True, kw_only=True)
class TextTask(PlacedTask[str]):
    """A text of which the next token is predicted."""

    splits: tuple[str, ...] = SPLITS

    @property
    def settings(self) -> type[LanguageConfig]:
        return LanguageConfig

    @property
    def objective(self) -> type[Language]:
        from .objective import Language

        return Language


@dataclass(frozen=True, kw_only=True)
class WikiText(TextTask):
    """Under the data folder, `text/<folder>/wiki.{train,valid,test}.tokens`, perhaps with `.gz`."""

    folder: str

    def places(self, data_dir: Path | str | None) -> dict[str, Path]:
        root, found = data_folder(data_dir), {}
        for split in self.splits if root is not None else ():
            stem = Path(str(root)) / "text" / self.folder / self._file(split)
            paths = (stem, stem.with_name(f"{stem.name}.gz"))
            if path := next((path for path in paths if path.is_file()), None):
                found[split] = path
        return found

    def read(self, place: Path, split: str) -> str:
        from .text import read_text

        return read_text(place)

    def how_to_get(self, data_dir: Path | str | None, missing: Sequence[str]) -> str:
        where = f"{named_folder(data_dir)}/text/{self.folder}/{self._file(missing[0])}"
        return f"expected {where} of the WikiText archive{name_the_folder(data_dir)}"

    def _file(self, split: str) -> str:
        return f"wiki.{'valid' if split == 'validation' else split}.tokens"


@dataclass(frozen=True, kw_only=True)
class OwnText(TextTask):
    """The text that `--data` names, or `train.txt` in the data folder. Its last lines are not
    trained on: a twentieth of them chooses the epoch, and another is the test set, unless `--test`,
    or `test.txt`, is there."""

    any_data: bool = True
    files: Mapping[str, Path] = field(default_factory=dict)

    def bound(self, settings: LanguageConfig) -> OwnText:
        return replace(self, files=named_files(settings))

    def places(self, data_dir: Path | str | None) -> dict[str, Path]:
        found = dict(self.files)
        if not found and (root := data_folder(data_dir)) is not None:
            paths = {split: root / f"{split}.txt" for split in ("train", "test")}
            found = {split: path for split, path in paths.items() if path.is_file()}
        if "train" in found:
            found = dict.fromkeys(self.splits, found["train"]) | found
        return found

    def load(
        self, data_dir: Path | str | None = None, *, splits: Sequence[str] | None = None
    ) -> dict[str, str]:
        places = self.places(data_dir)
        texts = super().load(data_dir, splits=splits)
        apart = len(set(places.values())) > 1  # the test set has a text of its own
        return {
            split: text if split == "test" and apart else part(text, split, apart)
            for split, text in texts.items()
        }

    def read(self, place: Path, split: str) -> str:
        from .text import read_text

        return read_text(place)

    def how_to_get(self, data_dir: Path | str | None, missing: Sequence[str]) -> str:
        return "expected --data FILE, any text"


def part(text: str, split: str, apart: bool = False) -> str:
    """The lines of a text that are those of a split; where the test set is apart, only the last
    twentieth is kept from training."""
    lines = text.splitlines(keepends=True)
    first, last = (1 - 2 * HELD_OUT, 1 - HELD_OUT) if not apart else (1 - HELD_OUT, 1.0)
    ends = {"train": (0.0, first), "validation": (first, last), "test": (last, 1.0)}[split]
    begin, end = (round(share * len(lines)) for share in ends)
    if begin >= end:
        raise DataError(
            f"the text has {len(lines)} lines; expected at least {round(1 / HELD_OUT)}, so that "
            "some can choose the epoch and some can test"
        )
    return "".join(lines[begin:end])


def language_tasks() -> list[TextTask]:
    """All of them."""
    return [
        WikiText(
            "lm/wikitext2", "the next word of Wikipedia articles",
            {"default": {"vocabulary": 10000}, "full": {}, "paper": PAPER},
            facts="2,088,628/217,646/245,569 words", folder="wikitext-2",
        ),
        WikiText(
            "lm/wikitext103", "the next word of Wikipedia articles",
            {"default": {"vocabulary": 50000}, "full": {}, "paper": PAPER},
            facts="103,227,021/217,646/245,569 words", folder="wikitext-103",
        ),
        OwnText(
            "lm/text", "the next token of your own text", {"default": {}, "paper": PAPER},
            facts="--data FILE, perhaps --test FILE",
        ),
    ]  # fmt: skip
