"""A line that says how far a fit is."""

from __future__ import annotations

import sys
import time

WIDTH = 30  # of the bar
EVERY = 0.2  # seconds


class Bar:
    """`networks 2/4 [######........] 45 %` on the standard error, drawn anew; nothing unless
    verbose."""

    def __init__(self, networks: int, verbose: bool) -> None:
        self.networks, self.verbose = networks, verbose
        self._shown = 0.0

    def show(self, number: int, step: int, steps: int) -> None:
        """Networks before `number` are done, and of that one so many steps."""
        now = time.monotonic()
        if not self.verbose or (now - self._shown < EVERY and step < steps):
            return
        self._shown = now
        share = (number + step / steps) / self.networks
        bar = ("#" * round(WIDTH * share)).ljust(WIDTH, ".")
        text = f"\rnetworks {number + 1}/{self.networks} [{bar}] {100 * share:.0f} %"
        print(text, end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        if self.verbose:
            print(file=sys.stderr)
