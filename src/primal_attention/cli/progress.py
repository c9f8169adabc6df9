"""What a run shows on stderr while it trains: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from ..train.events import EpochEvent, Observer, RunStart, StepEvent

if TYPE_CHECKING:
    from ..tasks.stores import Building

PLAIN_SECONDS = 5.0  # between plain lines
LIVE_SECONDS = 0.2  # between refreshes of the live line


class Watch(Observer):
    """Remembers where the run lies, for the message after Ctrl-C. By itself it is silent."""

    def __init__(self) -> None:
        self.run: Path | None = None

    def run_started(self, start: RunStart) -> None:
        self.run = start.run

    def close(self) -> None:
        """Leave the terminal clean."""


class PlainLines(Watch):
    """A line after an epoch and a part of a store, the first and the last one and others every few
    seconds."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console, self._last = console, 0.0
        self._began, self._before = 0.0, 0  # when this process began, and the steps done before
        self._store = ""  # the one that is being built

    def building(self, event: Building) -> None:
        now = time.monotonic()
        goes_on = event.name == self._store and event.done != event.total
        if goes_on and now - self._last < PLAIN_SECONDS:
            return
        self._store, self._last = event.name, now
        self._line(f"reading {event.name}, once: {_count(event)}")

    def run_started(self, start: RunStart) -> None:
        super().run_started(start)
        self._began, self._before, self._steps = time.monotonic(), start.step, start.steps
        self._last = 0.0
        self._line(_opening(start))

    def epoch(self, event: EpochEvent) -> None:
        now = time.monotonic()
        if event.epoch < event.epochs and now - self._last < PLAIN_SECONDS:
            return
        self._last = now
        pace = (now - self._began) / max(event.step - self._before, 1)
        left = _minutes(pace * (self._steps - event.step))
        count = f"{event.epoch:>{len(str(event.epochs))}}/{event.epochs}"
        best = "" if event.best_share is None else f" (best {100 * event.best_share:.1f} %)"
        self._line(f"epoch {count}  {_losses(event)}  {event.found.text}{best}  left {left}")

    def _line(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


class LiveLine(Watch):
    """One line: epoch, step, losses, the last evaluation and the time left. It is drawn from the
    events alone, so that no thread takes time from the training, and it is gone at the end."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._progress: Progress | None = None
        self._line = TaskID(0)
        self._drawn = 0.0
        self._found = ""
        self._store = ""  # the one that is being built

    def run_started(self, start: RunStart) -> None:
        super().run_started(start)
        self.close()
        self._console.print(_opening(start), highlight=False, markup=False)
        self._found = ""
        # rich measures the pace from the steps done in this process: those before do not count
        self._open(start.step, start.steps)
        self._epochs = start.config.epochs

    def building(self, event: Building) -> None:
        if event.name != self._store:
            self._open(event.done, event.total)
            self._store = event.name
        self._draw(event.done, event.total, f"reading {event.name}, once:", _count(event))

    def step(self, event: StepEvent) -> None:
        epoch = f"epoch {event.epoch}/{self._epochs} step {event.batch}/{event.batches}"
        self._draw(event.step, event.steps, epoch, f"{_losses(event)}{self._found}")

    def epoch(self, event: EpochEvent) -> None:
        self._found = f" {event.found.text}"

    def _open(self, done: int, total: int | None) -> None:
        """A new line, in the place of one that was."""
        self.close()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[figures]}"),
            TextColumn("left"),
            TimeRemainingColumn(compact=True),
            console=self._console,
            auto_refresh=False,
            transient=True,
            expand=True,
        )
        self._line = self._progress.add_task("", total=total, completed=done, figures="")
        self._drawn = 0.0
        self._progress.start()

    def _draw(self, done: int, total: int | None, description: str, figures: str) -> None:
        if self._progress is None:
            return
        self._progress.update(self._line, completed=done, total=total)
        now = time.monotonic()
        if now - self._drawn > LIVE_SECONDS or done == total:
            self._drawn = now
            self._progress.update(
                self._line, description=description, figures=figures, refresh=True
            )

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def watch(console: Console, *, quiet: bool) -> Watch:
    """The observer that fits where stderr goes."""
    if quiet:
        return Watch()
    return LiveLine(console) if console.is_terminal else PlainLines(console)


def _opening(start: RunStart) -> str:
    done = f", from step {start.step}" if start.step else ""
    return f"{start.opening}{done}\n{start.run}"


def _count(event: Building) -> str:
    return f"{event.done:,}" + ("" if event.total is None else f" of {event.total:,}") + " cases"


def _losses(event: StepEvent | EpochEvent) -> str:
    ksvd = "" if event.ksvd_loss is None else f" KSVD {event.ksvd_loss:.3g}"
    return f"task {event.task_loss:.3f}{ksvd}"


def _minutes(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
