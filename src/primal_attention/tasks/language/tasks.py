"""The tasks `lm/...`: WikiText-2, WikiText-103, and anybody's text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..folders import data_folder
from ..placed import PlacedTask, name_the_folder, named_folder
from .settings import LanguageConfig

if TYPE_CHECKING:
    from .objective import Language

SPLITS = ("train", "validation", "test")
# as published with the authors' code: six causal layers, the last one primal
PAPER: dict[str, Any] = {
    "weights": "free", "feature_map": "cosine", "rank": 30, "eta": 0.1, "place": "learned",
}  # fmt: skip
SHARES = {"validation": (0.9, 0.95), "test": (0.95, 1.0), "train": (0.0, 0.9)}  # of one text


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
    """In the data folder `train.txt`, and perhaps `validation.txt` and `test.txt`; where these are
    not there, the last tenth of the lines of `train.txt`, half for each, is not trained on."""

    any_data: bool = True

    def places(self, data_dir: Path | str | None) -> dict[str, Path]:
        root = data_folder(data_dir)
        if root is None:
            return {}
        return self._parts({split: root / f"{split}.txt" for split in self.splits})

    def _parts(self, files: dict[str, Path]) -> dict[str, Path]:
        found = {split: path for split, path in files.items() if path.is_file()}
        if "train" in found:
            for split in self.splits:
                found.setdefault(split, found["train"])
        return found

    def read(self, place: Path, split: str) -> str:
        from .text import read_text

        text = read_text(place)
        others = self._parts({s: place.with_name(f"{s}.txt") for s in self.splits})
        shared = [s for s in self.splits if others.get(s, place) == place]
        return text if shared == [split] else _share(text, split, shared)

    def how_to_get(self, data_dir: Path | str | None, missing: Sequence[str]) -> str:
        where = f"{named_folder(data_dir)}/train.txt"
        return f"expected {where}, any text{name_the_folder(data_dir)}"


def _share(text: str, split: str, shared: Sequence[str]) -> str:
    """The lines of a text that are those of a split; one that has a text of its own leaves its share
    to the training part."""
    lines = text.splitlines(keepends=True)
    first, last = SHARES[split]
    if split == "train":
        last = 0.9 if "validation" in shared else 0.95 if "test" in shared else 1.0
    elif "validation" not in shared or "test" not in shared:
        first = 0.95
        last = 1.0
    return "".join(lines[int(first * len(lines)) : int(last * len(lines))])


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
            facts="train.txt, perhaps validation.txt and test.txt",
        ),
    ]  # fmt: skip
