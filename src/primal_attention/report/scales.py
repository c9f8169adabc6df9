"""From numbers to places on an axis, and the numbers that are written at it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
MOST_TICKS = 6


@dataclass(frozen=True)
class Scale:
    """Maps [low, high] to [start, end], linearly or by logarithms."""

    low: float
    high: float
    start: float
    end: float
    log: bool

    def __call__(self, value: float) -> float:
        low, high = self._inner(self.low), self._inner(self.high)
        share = (self._inner(max(value, self.low) if self.log else value) - low) / (high - low)
        return self.start + share * (self.end - self.start)

    def _inner(self, value: float) -> float:
        return math.log10(value) if self.log else value

    @property
    def words(self) -> str:
        """All of it for the script of the page: "log 1.0 100.0 54.0 428.0"."""
        kind = "log" if self.log else "linear"
        return f"{kind} {self.low!r} {self.high!r} {self.start!r} {self.end!r}"

    def ticks(self) -> list[float]:
        """Round numbers within the range."""
        return self._log_ticks() if self.log else self._linear_ticks()

    def text(self, value: float) -> str:
        """A tick as people write it."""
        if value == 0 or 1e-3 <= abs(value) < 1e5:
            return f"{value:,.10g}"
        exponent = math.floor(math.log10(abs(value)) + 1e-9)
        factor = value / 10.0**exponent
        power = f"10{str(exponent).translate(SUPERSCRIPTS)}"
        return power if abs(factor - 1) < 1e-6 else f"{factor:.3g}·{power}"

    def _linear_ticks(self) -> list[float]:
        rough = (self.high - self.low) / MOST_TICKS
        unit = 10.0 ** math.floor(math.log10(rough))
        step = next(unit * f for f in (1, 2, 5, 10) if unit * f >= rough * (1 - 1e-9))
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [round(i * step, 12) for i in range(first, last + 1)]

    def _log_ticks(self) -> list[float]:
        first = math.floor(math.log10(self.low))
        last = math.ceil(math.log10(self.high))
        factors: tuple[int, ...] = (1,) if last - first > 3 else (1, 2, 5)
        stride = max(1, math.ceil((last - first) / MOST_TICKS))
        found = [10.0**e * f for e in range(first, last + 1, stride) for f in factors]
        inside = [v for v in found if self.low * (1 - 1e-9) <= v <= self.high * (1 + 1e-9)]
        return inside if len(inside) > 1 else self._linear_ticks()


def span(values: Sequence[float], *, log: bool, margin: float = 0.05) -> tuple[float, float]:
    """The range of an axis: that of the finite values with a margin, never empty."""
    usable = [float(v) for v in values if math.isfinite(v) and (v > 0 or not log)]
    if not usable:
        return (0.1, 1.0) if log else (0.0, 1.0)
    low, high = min(usable), max(usable)
    if log:
        if high <= low * (1 + 1e-9):
            return low / 2, high * 2
        room = (high / low) ** margin
        return low / room, high * room
    if high - low <= 1e-12 * max(abs(low), abs(high), 1e-300):
        half = abs(low) / 10 or 0.5
        return low - half, high + half
    room = margin * (high - low)
    return low - room, high + room
