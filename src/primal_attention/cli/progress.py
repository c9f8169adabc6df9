"""What commands show on stderr at work: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from ..train.events import EpochEvent, Observer, RunStart, StepEvent

if TYPE_CHECKING:
    from ..tasks.stores import Building

PLAIN_SECONDS = 5.0  # between plain lines
LIVE_SECONDS = 0.2  # between refreshes of the live line


class Display:
    """Lines, and below them one live line, where there is a terminal. It is drawn from the calls
    alone, so that no thread takes time from the work, and it is gone at the end."""

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self._console, self.quiet = console, quiet
        self.live = console.is_terminal and not quiet
        self._progress: Progress | None = None
        self._line, self._drawn, self._said = TaskID(0), 0.0, 0.0

    def say(self, text: str) -> None:
        """A line that stays."""
        if not self.quiet:
            self._said = time.monotonic()
            self._console.print(text, highlight=False, markup=False, soft_wrap=not self.live)

    def say_seldom(self, text: str | Callable[[], str], *, at_once: bool = False) -> None:
        """A line, unless there was one within the last seconds, or there is a live line."""
        if not self.live and (at_once or time.monotonic() - self._said >= PLAIN_SECONDS):
            self.say(text if isinstance(text, str) else text())

    def draw(self, done: int, total: int | None, text: str, figures: str = "") -> None:
        """The live line: how far the work is, and the time that is left at the pace since the first
        call; `close` begins a new one."""
        if not self.live:
            return
        progress = self._progress or self._open(done, total)
        progress.update(self._line, completed=done, total=total)
        now = time.monotonic()
        if now - self._drawn > LIVE_SECONDS or done == total:
            self._drawn = now
            progress.update(self._line, description=text, figures=figures, refresh=True)

    def counter(self, title: str) -> Callable[[int, int], None]:
        """To be told how many parts of how many are done."""

        def tell(done: int, total: int) -> None:
            self.draw(done, total, title, f"{done} of {total}")
            self.say_seldom(f"{title}: {done} of {total} parts", at_once=done in (0, total))

        return tell

    def close(self) -> None:
        """Leave the terminal clean."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _open(self, done: int, total: int | None) -> Progress:
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
        return self._progress


class Watch(Observer):
    """Shows how runs train. It remembers where the run lies, for the message after Ctrl-C."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self.run: Path | None = None
        self._found = self._store = ""  # the last evaluation; the store that is being built

    def building(self, event: Building) -> None:
        if event.name != self._store:
            self._display.close()
        text = f"reading {event.name}, once:"
        ends = event.name != self._store or event.done == event.total
        self._store = event.name
        self._display.draw(event.done, event.total, text, _count(event))
        self._display.say_seldom(f"{text} {_count(event)}", at_once=ends)

    def run_started(self, start: RunStart) -> None:
        self.run, self._start, self._found, self._first = start.run, start, "", True
        self._began = time.monotonic()
        self._display.close()
        done = f", from step {start.step}" if start.step else ""
        self._display.say(f"{start.opening}{done}\n{start.run}")

    def step(self, event: StepEvent) -> None:
        epochs = self._start.config.epochs
        text = f"epoch {event.epoch}/{epochs} step {event.batch}/{event.batches}"
        self._display.draw(event.step, event.steps, text, f"{_losses(event)}{self._found}")

    def epoch(self, event: EpochEvent) -> None:
        if event.found is not None:
            self._found = f" {event.found.text}"
        ends = self._first or event.epoch == event.epochs
        self._display.say_seldom(lambda: self._epoch(event), at_once=ends)
        self._first = False

    def _epoch(self, event: EpochEvent) -> str:
        pace = (time.monotonic() - self._began) / max(event.step - self._start.step, 1)
        left = _minutes(pace * (self._start.steps - event.step))
        count = f"{event.epoch:>{len(str(event.epochs))}}/{event.epochs}"
        best = "" if event.best_share is None else f" (best {100 * event.best_share:.1f} %)"
        return f"epoch {count}  {_losses(event)} {self._found}{best}  left {left}"


def _count(event: Building) -> str:
    return f"{event.done:,}" + ("" if event.total is None else f" of {event.total:,}") + " cases"


def _losses(event: StepEvent | EpochEvent) -> str:
    ksvd = "" if event.ksvd_loss is None else f" KSVD {event.ksvd_loss:.3g}"
    return f"task {event.task_loss:.3f}{ksvd}"


def _minutes(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
