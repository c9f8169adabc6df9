"""Tasks of recorded episodes, "rl/hopper-medium", and where the episodes lie."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...names import unknown
from ..base import DataError, DataStatus, Task
from ..folders import ENVIRONMENT, data_folder
from .environments import ENVIRONMENTS, Environment
from .files import MINARI_FILE, read_d4rl, read_minari
from .settings import DecisionConfig
from .trajectories import Trajectories

if TYPE_CHECKING:
    from .objective import Decision

PREFIX = "rl/"
LEVELS = ("medium", "medium-replay", "medium-expert")
COLLECTED = "collected"  # the namespace of the Minari sets that `primal data collect` makes


@dataclass(frozen=True)
class RLTask(Task):
    """Recorded episodes of an environment. Under the data folder are looked for, in this order,

    d4rl/hopper_medium-v2.hdf5                       a file of D4RL, of any version
    minari/<namespace>/hopper/medium-v0/             a Minari set: mujoco/..., then collected/...

    and the same Minari sets under the folder in MINARI_DATASETS_PATH. There is one recipe alone:
    the defaults of a run are the paper's.
    """

    splits: tuple[str, ...] = field(default=("train",), kw_only=True)
    any_data: bool = field(default=True, kw_only=True)
    environment: Environment = field(kw_only=True)
    level: str = field(kw_only=True)

    @classmethod
    def of(cls, environment: Environment, level: str) -> RLTask:
        name = f"{PREFIX}{environment.name}-{level}"
        description = f"actions for a wanted return: {level} episodes of {environment.id}"
        return cls(name, description, {"default": {}}, environment=environment, level=level)

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
        name = self.environment.name
        found: list[Path] = []
        if folder is not None:
            stem = f"{name}_{self.level.replace('-', '_')}"
            files = [*(folder / "d4rl").glob(f"{stem}-v*.hdf5")]
            found += sorted(files, reverse=True)  # the newest version first
            found += [path for path in [folder / "d4rl" / f"{stem}.hdf5"] if path.is_file()]
        for root in self._minari_roots(folder):
            sets = [p for p in root.glob(f"*/{name}/{self.level}-v*") if (p / MINARI_FILE).exists()]
            ours = [p for p in sets if p.parts[-3] == COLLECTED]
            found += sorted(set(sets) - set(ours), reverse=True) + sorted(ours, reverse=True)
        return found[0] if found else None

    def place(self, data_dir: Path | str | None = None) -> str:
        found = self.find(data_dir)
        return "" if found is None else str(found.resolve())

    def load(
        self, data_dir: Path | str | None = None, *, splits: Sequence[str] = ("train",)
    ) -> Mapping[str, Trajectories]:
        """The episodes are all there to learn from."""
        for split in splits:
            if split not in self.splits:
                raise ValueError(unknown(f"split of {self.name}:", split, self.splits))
        return {split: self.episodes(data_dir) for split in splits}

    def episodes(self, data_dir: Path | str | None = None) -> Trajectories:
        """The episodes; a DataError says how to get them."""
        path = self.find(data_dir)
        if path is None:
            raise DataError(f"the data of {self.name} is not here; {self._how_to_get(data_dir)}")
        if path.is_dir():
            return read_minari(path)
        return read_d4rl(path, horizon=self.environment.horizon)

    def status(self, data_dir: Path | str | None = None) -> DataStatus:
        """Where the episodes lie; nothing is read."""
        path = self.find(data_dir)
        return DataStatus(
            task=self.name,
            facts=self.description,
            places={} if path is None else {"train": str(path)},
            missing=("train",) if path is None else (),
            how_to_get=self._how_to_get(data_dir),
        )

    def _how_to_get(self, data_dir: Path | str | None) -> str:
        folder = data_folder(data_dir)
        place = ENVIRONMENT if folder is None else str(folder)
        stem = f"{self.environment.name}_{self.level.replace('-', '_')}"
        return (
            f"expected {place}/d4rl/{stem}-v2.hdf5 or {place}/minari/mujoco/"
            f"{self.environment.name}/{self.level}-v0: get them from D4RL or Minari, or make one "
            f"with `primal data collect {self.environment.name}-{self.level}`"
        )

    @staticmethod
    def _minari_roots(folder: Path | None) -> list[Path]:
        given: list[Any] = [None if folder is None else folder / "minari"]
        given.append(os.environ.get("MINARI_DATASETS_PATH"))
        return [Path(root).expanduser() for root in given if root]


def rl_tasks() -> list[RLTask]:
    """All data sets."""
    return [RLTask.of(env, level) for env in ENVIRONMENTS.values() for level in LEVELS]


def get_rl_task(name: str) -> RLTask:
    """A data set by name, e.g. `get_rl_task("rl/hopper-medium")`."""
    known = {task.name: task for task in rl_tasks()}
    if name not in known:
        raise ValueError(unknown("task", name, sorted(known)))
    return known[name]
