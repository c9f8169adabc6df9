"""What a benchmark shows on stderr while it measures. Its room imports torch, so this is apart."""

from __future__ import annotations

from pathlib import Path

from ..bench import Cell, Watch
from .progress import Display


class BenchWatch(Watch):
    """Shows every cell. It remembers the folder, for the message after Ctrl-C."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self.folder: Path | None = None

    def started(self, folder: Path, title: str, cells: int, kept: int) -> None:
        self.folder = folder
        before = f", {kept} of them known from before" if kept else ""
        self._display.say(f"{title}: {cells} cells{before}\n{folder}")

    def part(self, title: str) -> None:
        if not self._display.live:
            self._display.say(title)

    def working(self, share: float, text: str) -> None:
        self._display.draw(round(1000 * share), 1000, text, f"{100 * share:.0f} %")

    def found(self, cell: Cell) -> None:
        if not self._display.live:
            self._display.say(str(cell))
