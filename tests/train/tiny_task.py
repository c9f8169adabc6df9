"""A task for tests: some cases of an embedded set. Run as a program, it trains or resumes a run in
a process of its own, which may be told to kill itself at a file operation."""

import functools
import os
import signal
import sys
from pathlib import Path
from typing import ClassVar

from primal_attention import tasks
from primal_attention.tasks import DataStatus, Task, get_task
from primal_attention.train import resume, train
from primal_attention.train.config import config_of

NAME = "tests/vowels"
SETTINGS = {
    "task": NAME,
    "width": 16,
    "heads": 2,
    "feedforward": 16,
    "rank": 3,
    "epochs": 3,
    "batch_size": 10,
    "lr": 0.01,
    "eta": 0.2,
    "dropout": 0.2,
    "optimizer": "radam",
}


@functools.cache
def vowels(split):
    return get_task("uea/JapaneseVowels").load(splits=(split,))[split]


class TinyTask(Task):
    loads: ClassVar[list] = []  # the splits of every call
    has_test = True
    first = 0  # another number is other data

    def load(self, data_dir=None, *, splits=("train", "test")):
        self.loads.append(tuple(splits))
        return {s: vowels(s).subset(range(self.first, len(vowels(s)), 6)) for s in splits}

    def status(self, data_dir=None):
        missing = () if self.has_test else ("test",)
        return DataStatus(self.name, "", {}, missing, "")


def register():
    TinyTask.loads = []
    task = TinyTask(NAME, "some vowels", {"default": {}})
    tasks._tasks[NAME] = task
    return task


def main(run, changes, kill_at):
    """Train or resume `run`; SIGKILL before the file operation number `kill_at`."""
    import torch

    torch.set_num_threads(1)
    register()
    calls = 0

    def watched(operation):
        def call(*arguments, **options):
            nonlocal calls
            calls += 1
            if calls == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return operation(*arguments, **options)

        return call

    for name in ("fsync", "rename", "replace", "mkdir", "rmdir", "unlink"):
        setattr(os, name, watched(getattr(os, name)))
    run = Path(run)
    try:
        if run.exists():
            resume(run)
        else:
            settings = changes if "task" in changes else SETTINGS | changes
            train(config_of(settings), root=run.parent, name=run.name)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main(RUN, CHANGES, KILL_AT)  # noqa: F821 (given by runpy)
