"""What a run reads: the training part, the part that chooses the epoch, and the test set."""

from __future__ import annotations

from dataclasses import dataclass

from ...runs.errors import RunError
from .. import get_task
from ..base import Task
from ..examples import Examples, Part, Reader
from ..series import stratified_split
from .settings import RunConfig


@dataclass
class RunData:
    """`train` is learned from and `selection` ("validation" or "test") chooses the epoch."""

    config: RunConfig
    train: Examples
    selection: Examples
    split: str
    fingerprints: dict[str, str]
    reader: Reader  # what it knows comes from `train` alone

    def read_test(self) -> Examples | None:
        """The test set; None where there is none."""
        if self.split == "test":
            return self.selection
        task = get_task(self.config.task)
        if "test" in task.status(self.config.data_dir).missing:
            return None
        # with the training set, so that the task can compare the two
        return self.reader(_read(task, self.config, "train", "test")["test"])


def load_data(config: RunConfig) -> RunData:
    """The data of a run. With protocol "holdout" the test set is not touched."""
    task = get_task(config.task)
    split = "test" if config.protocol == "paper" else "validation"
    if split in task.splits:
        parts = _read(task, config, "train", split)
        train, selection = parts["train"], parts[split]
    else:
        parts = _read(task, config, "train")
        whole = parts["train"]
        kept, held_out = stratified_split(whole.labels, config.validation_fraction, config.seed)
        train, selection = whole.subset(kept), whole.subset(held_out)
    reader = task.reader(train, config)
    fingerprints = {name: part.fingerprint() for name, part in parts.items()}
    examples = reader(train, training=True)
    return RunData(config, examples, reader(selection), split, fingerprints, reader)


def _read(task: Task, config: RunConfig, *splits: str) -> dict[str, Part]:
    parts = dict(task.load(config.data_dir, splits=splits))
    for part in parts.values():
        if part.labels.min() < 0:
            raise RunError(
                f"{part.name} has {int((part.labels < 0).sum())} cases without a label; expected a "
                "label for every case"
            )
    return parts
