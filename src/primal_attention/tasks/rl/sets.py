"""Tasks of recorded episodes, "rl/hopper-medium", and where the episodes lie."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...names import unknown
from ..folders import data_folder
from ..placed import PlacedTask, name_the_folder, named_folder
from .environments import ENVIRONMENTS, Environment
from .files import MINARI_FILE, read_d4rl, read_minari
from .settings import DecisionConfig
from .trajectories import Trajectories

if TYPE_CHECKING:
    from .objective import Decision

PREFIX = "rl/"
LEVELS = ("medium", "medium-replay", "medium-expert")
COLLECTED = "collected"  # the namespace of the Minari sets that `primal data collect` makes


@dataclass(frozen=True, kw_only=True)
class RLTask(PlacedTask[Trajectories]):
    """Recorded episodes of an environment. Under the data folder are looked for, in this order,

    d4rl/hopper_medium-v2.hdf5                       a file of D4RL, of any version
    minari/<namespace>/hopper/medium-v0/             a Minari set: mujoco/..., then collected/...

    and the same Minari sets under the folder in MINARI_DATASETS_PATH. There is one recipe alone:
    the defaults of a run are the paper's. All episodes are there to learn from.
    """

    splits: tuple[str, ...] = ("train",)
    any_data: bool = True
    environment: Environment
    level: str

    @classmethod
    def of(cls, environment: Environment, level: str) -> RLTask:
        name = f"{PREFIX}{environment.name}-{level}"
        about = f"actions for a wanted return: {level} episodes of {environment.id}"
        return cls(name, about, {"default": {}}, facts=about, environment=environment, level=level)

    @property
    def stem(self) -> str:
        """The name of a file of D4RL, without its version."""
        return f"{self.environment.name}_{self.level.replace('-', '_')}"

    @property
    def settings(self) -> type[DecisionConfig]:
        return DecisionConfig

    @property
    def objective(self) -> type[Decision]:
        from .objective import Decision

        return Decision

    def find(self, data_dir: Path | str | None = None) -> Path | None:
        """The file or folder that is used; None if there is none."""
        folder = data_folder(data_dir)
        roots: list[Path | str | None] = [os.environ.get("MINARI_DATASETS_PATH")]
        found: list[Path] = []
        if folder is not None:
            found += sorted((folder / "d4rl").glob(f"{self.stem}-v*.hdf5"), reverse=True)
            found += [path for path in [folder / "d4rl" / f"{self.stem}.hdf5"] if path.is_file()]
            roots.insert(0, folder / "minari")
        for root in (Path(root).expanduser() for root in roots if root):
            places = root.glob(f"*/{self.environment.name}/{self.level}-v*")
            sets = sorted((p for p in places if (p / MINARI_FILE).exists()), reverse=True)
            found += sorted(sets, key=lambda p: p.parts[-3] == COLLECTED)  # ours last
        return found[0] if found else None

    def place(self, data_dir: Path | str | None = None) -> str:
        found = self.find(data_dir)
        return "" if found is None else str(found.resolve())

    def places(self, data_dir: Path | str | None) -> dict[str, Path]:
        found = self.find(data_dir)
        return {} if found is None else {"train": found}

    def read(self, place: Path, split: str) -> Trajectories:
        if place.is_dir():
            return read_minari(place)
        return read_d4rl(place, horizon=self.environment.horizon)

    def episodes(self, data_dir: Path | str | None = None) -> Trajectories:
        """The episodes; a DataError says how to get them."""
        return self.load(data_dir)["train"]

    def how_to_get(self, data_dir: Path | str | None, missing: Sequence[str]) -> str:
        root, name = named_folder(data_dir), self.environment.name
        return (
            f"expected {root}/d4rl/{self.stem}-v2.hdf5 or {root}/minari/mujoco/{name}/{self.level}"
            "-v0: get them from D4RL or Minari, or make one with `primal data collect "
            f"{name}-{self.level}`{name_the_folder(data_dir)}"
        )


def rl_tasks() -> list[RLTask]:
    """All data sets."""
    return [RLTask.of(env, level) for env in ENVIRONMENTS.values() for level in LEVELS]


def get_rl_task(name: str) -> RLTask:
    """A data set by name, e.g. `get_rl_task("rl/hopper-medium")`."""
    known = {task.name: task for task in rl_tasks()}
    if name not in known:
        raise ValueError(unknown("task", name, sorted(known)))
    return known[name]
