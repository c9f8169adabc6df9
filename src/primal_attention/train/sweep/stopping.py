"""Who may stop a run before its end: a median rule, and a deadline."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..events import Audience, EpochEvent, Observer, RunStart, StepEvent


class Stopper(Observer):
    """Asks a run to stop; `reason` then says why. A run that is stopped keeps its checkpoint."""

    reason: str | None = None

    def stop(self, reason: str) -> None:
        self.reason = reason
        raise KeyboardInterrupt


@dataclass(frozen=True)
class MedianRule:
    """A run is hopeless after an epoch if its best accuracy so far is below the median of the best
    that the others had by that epoch. It needs `least` other runs, and holds from `first_epoch` on,
    or from the tenth part of the epochs if that is later."""

    least: int = 4
    first_epoch: int = 3

    def verdict(
        self, curve: Sequence[float], epochs: int, others: Sequence[Sequence[float]]
    ) -> str | None:
        """Why the run is hopeless; None if it is not."""
        epoch = len(curve)
        if not max(self.first_epoch, -(-epochs // 10)) <= epoch < epochs:
            return None
        rivals = [max(other[:epoch]) for other in others if len(other) >= epoch]
        if len(rivals) < self.least:
            return None
        best, median = max(curve), statistics.median(rivals)
        if best >= median:
            return None
        return (
            f"stopped after epoch {epoch} of {epochs}: {100 * best:.1f} % at best, the median of "
            f"{len(rivals)} other runs was {100 * median:.1f} %"
        )


class StopHopeless(Stopper):
    """The rule, applied to a run after each of its epochs. `before` are the accuracies of the
    epochs that were done in an earlier process; `others` gives the curves of other runs."""

    def __init__(
        self,
        rule: MedianRule,
        others: Callable[[], Sequence[Sequence[float]]],
        before: Sequence[float] = (),
    ) -> None:
        self._rule, self._others, self._curve = rule, others, list(before)

    def epoch(self, event: EpochEvent) -> None:
        del self._curve[event.epoch - 1 :]  # what a resumed run comes by again
        last = self._curve[-1] if self._curve else 0.0
        self._curve.append(last if event.share is None else event.share)
        if len(self._curve) < event.epoch:  # epochs of the past are unknown
            return
        if why := self._rule.verdict(self._curve, event.epochs, self._others()):
            self.stop(why)


class Deadline(Stopper):
    """Stops a run at a time of `time.time()`. With `whole`, also as soon as its pace shows that it
    would not end by then, after some seconds to find the pace."""

    PATIENCE = 10.0

    def __init__(self, deadline: float, *, whole: bool) -> None:
        self._deadline, self._whole = deadline, whole
        self._began, self._before = time.time(), 0

    def run_started(self, start: RunStart) -> None:
        self._began, self._before = time.time(), start.step

    def step(self, event: StepEvent) -> None:
        if event.step >= event.steps:  # its end costs an evaluation only
            return
        now = time.time()
        share = f"{event.step} of {event.steps} steps are done"
        if now >= self._deadline:
            self.stop(f"out of time: {share}")
        spent = now - self._began
        if self._whole and spent >= self.PATIENCE:
            left = spent / (event.step - self._before) * (event.steps - event.step)
            if now + left > self._deadline:
                time_left = f"{left:.0f} s" if left < 100 else f"{left / 60:.0f} min"
                self.stop(f"needs {time_left} more: {share}")


class Several(Observer):
    """Passes the events on to several observers; all are told before one of them stops the run."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._audiences = [Audience(one, self._ask) for one in observers]
        self._asked = False

    def _ask(self) -> None:
        self._asked = True

    def told(self, method: str, event: Any) -> None:
        for audience in self._audiences:  # a display that broke must not end deadlines
            audience.tell(method, event)
        if self._asked:
            self._asked = False
            raise KeyboardInterrupt
