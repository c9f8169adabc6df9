"""The tasks `events/...`: Stack Overflow badges, orders of a stock, and anybody's table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files import named_files
from ..folders import data_folder
from ..placed import PlacedTask, name_the_folder, named_folder
from .settings import EventConfig

if TYPE_CHECKING:
    from .objective import Events
    from .sets import EventSet

BADGES = (
    "Nice Question", "Good Answer", "Guru", "Popular Question", "Famous Question", "Nice Answer",
    "Good Question", "Caucus", "Notable Question", "Necromancer", "Promoter", "Yearling", "Revival",
    "Enlightened", "Great Answer", "Populist", "Great Question", "Constituent", "Announcer",
    "Stellar Question", "Booster", "Publicist",
)  # fmt: skip
LEAST_STEPS, MOST_EPOCHS = 500, 60  # of a table of few sequences
TABLES = ("csv", "csv.gz", "tsv", "tsv.gz")


@dataclass(frozen=True, kw_only=True)
class EventTask(PlacedTask["EventSet"]):
    """Sequences of events of which the next one is predicted."""

    @property
    def settings(self) -> type[EventConfig]:
        return EventConfig

    @property
    def objective(self) -> type[Events]:
        from .objective import Events

        return Events


@dataclass(frozen=True, kw_only=True)
class PairTask(EventTask):
    """Under the data folder, `events/<folder>/event<part>-train.txt` and `time<part>-train.txt`,
    the same with `-test`, each perhaps with `.gz`: a line for each sequence."""

    folder: str
    part: str = ""
    names: tuple[str, ...]

    def places(self, data_dir: Path | str | None) -> dict[str, Path]:
        root = data_folder(data_dir)
        found = {} if root is None else {s: self._file(root, "event", s) for s in self.splits}
        return {split: path for split, path in found.items() if path is not None}

    def read(self, place: Path, split: str) -> EventSet:
        from .files import read_pair

        times = self._file(place.parents[2], "time", split) or place.with_name("time file")
        return read_pair(place, times, self.names, f"{self.name} {split}")

    def _file(self, root: Path, kind: str, split: str) -> Path | None:
        stem = root / "events" / self.folder / f"{kind}{self.part}-{split}.txt"
        paths = (stem, stem.with_name(f"{stem.name}.gz"))
        return next((path for path in paths if path.is_file()), None)

    def how_to_get(self, data_dir: Path | str | None, missing: Sequence[str]) -> str:
        where = f"{named_folder(data_dir)}/events/{self.folder}/event{self.part}-{missing[0]}.txt"
        return f"expected {where} and time...{name_the_folder(data_dir)}"


@dataclass(frozen=True, kw_only=True)
class TableTask(EventTask):
    """A table of (sequence, time, type): the file that `--data` names and perhaps that of `--test`,
    or `train.csv` and perhaps `test.csv` in the data folder. Without a test set the figures are
    those of the sequences that are held out."""

    any_data: bool = True
    files: Mapping[str, Path] = field(default_factory=dict)

    def bound(self, settings: EventConfig) -> TableTask:
        """With its files, and as many epochs as make LEAST_STEPS steps of few sequences."""
        files = named_files(settings)
        if "train" not in files:
            return self
        batches = -(-len(self.read(files["train"], "train")) // settings.batch_size)
        epochs = max(EventConfig(task=self.name).epochs, -(-LEAST_STEPS // batches))
        recipes = {**self.recipes, "default": {"epochs": min(epochs, MOST_EPOCHS)}}
        return replace(self, files=files, recipes=recipes)

    def places(self, data_dir: Path | str | None) -> Mapping[str, Path]:
        if self.files:
            return self.files
        root = data_folder(data_dir)
        found = {}
        for split in self.splits if root is not None else ():
            paths = [Path(str(root)) / f"{split}.{end}" for end in TABLES]
            if path := next((path for path in paths if path.is_file()), None):
                found[split] = path
        return found

    def read(self, place: Path, split: str) -> EventSet:
        from .files import read_table

        known = None
        if split == "test":  # what happens is what happened in training
            train = self.files.get("train") or self.places(place.parent)["train"]
            known = read_table(train).names
        return read_table(place, known)

    def how_to_get(self, data_dir: Path | str | None, missing: Sequence[str]) -> str:
        if self.files:
            return "no test set was named; expected --test FILE"
        return "expected --data FILE, a table with the columns sequence, time and type"


def event_tasks() -> list[EventTask]:
    """All of them."""
    badges: Mapping[str, Mapping[str, Any]] = {"default": {}}
    orders: Mapping[str, Mapping[str, Any]] = {"default": {"batch_size": 4, "epochs": 6}}
    return [
        PairTask(
            "events/stackoverflow", "which badge a user of Stack Overflow gets next, and when",
            badges, facts="3,142/1,326 users, 22 badges, seconds", folder="stackoverflow",
            names=BADGES,
        ),
        PairTask(
            "events/book_order", "whether the next order of a stock is a sale, and when", orders,
            facts="100/100 sequences, 2 types, seconds", folder="book_order", part="-1",
            names=("1", "2"),
        ),
        TableTask(
            "events/csv", "your own table of (sequence, time, type)", {"default": {}},
            facts="--data FILE, perhaps --test FILE",
        ),
    ]  # fmt: skip
