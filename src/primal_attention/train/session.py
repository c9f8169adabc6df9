"""A run at work in its folder, from its last checkpoint or from the beginning."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIG_IGN, SIGHUP, SIGINT, SIGTERM, default_int_handler, getsignal, signal
from threading import current_thread, main_thread
from typing import Any

from lightning_fabric import Fabric
from safetensors import SafetensorError
from torch import Tensor

from ..runs.errors import RunError
from ..runs.files import explained, read_json, write_bytes, write_json
from ..runs.folder import MEMORY
from ..runs.metrics import MetricsFile
from ..tasks.objective import Ended, Objective, RunResult
from . import checkpoint
from .config import EngineConfig
from .events import Audience, EpochEvent, Observer, RunStart
from .loop import Loop, Progress
from .optim import make_optimizer
from .order import seed_random
from .track import PREFIX, TransportTracker

AVERAGE = "average/"  # before the names of averaged weights in a checkpoint


class Session:
    """One process of a run. All compute; process 0 alone writes and is observed."""

    def __init__(
        self, fabric: Fabric, objective: Objective[Any, Any], path: Path, observer: Observer | None
    ) -> None:
        self.fabric, self.objective, self.path = fabric, objective, path
        self.config: EngineConfig = objective.config
        self.writes = fabric.is_global_zero
        if self.writes:
            self._check_data()
        self.checkpoint_folder = path / "checkpoints"
        last = checkpoint.load_latest(self.checkpoint_folder)
        asked = getattr(self.config, "track", "none") == "transport"
        self.tracker = TransportTracker() if asked else None
        self.loop = self._make_loop(last)
        fabric.barrier()  # all have read before process 0 writes
        if self.writes:
            checkpoint.clean(self.checkpoint_folder, self.loop.progress.step)
        keep = 0 if last is None else last.state["metrics_bytes"]
        self.metrics = MetricsFile(path / "metrics.jsonl", keep) if self.writes else None
        self.audience = Audience(observer if self.writes else None, self._ask_to_stop)
        self.saved_at = time.monotonic()
        self.saved_best: int | None = None  # the epoch whose weights this process has written

    def run(self) -> RunResult:
        """Train to the end, or until asked to stop: then a KeyboardInterrupt after a checkpoint."""
        opening = self.objective.opening(self.parameters, self.loop.steps)
        place = self.loop.progress.step, self.loop.steps
        start = RunStart(self.path, self.config, self.parameters, opening, *place)
        self.audience.tell("run_started", start)
        with asked_by_signals(self._ask_to_stop):
            if self.loop.progress.step == 0:
                self._track(0)
            for event in self.loop:
                kind = "epoch" if isinstance(event, EpochEvent) else "step"
                if self.metrics is not None:
                    self.metrics.add(kind, event.to_metrics())
                if kind == "epoch":
                    self._track(event.epoch)
                self.audience.tell(kind, event)
                if time.monotonic() - self.saved_at >= self.config.checkpoint_seconds:
                    self._save()
            self._save()
        if self.loop.stop or self.loop.stopped:
            raise KeyboardInterrupt
        result = self._result()
        if self.writes:
            with explained(f"write into {self.path}"):
                write_json(self.path / "result.json", result.to_dict())
        self.audience.tell("finished", result)
        return result

    def _track(self, epoch: int) -> None:
        """What the attentions transport after an epoch, where that was asked for."""
        if self.tracker is None or self.metrics is None:
            return
        batches = [self.fabric.to_device(batch) for batch in self.objective.looked_at()]
        inputs = [tuple(self.objective.inputs(batch)) for batch in batches]
        found = self.tracker.look(self.loop.model, inputs)
        self.metrics.add("transport", {"epoch": epoch, "attentions": found})

    def close(self) -> None:
        if self.metrics is not None:
            self.metrics.close()

    def _ask_to_stop(self) -> None:
        self.loop.stop = True

    # -- begin -----------------------------------------------------------------------------------

    def _check_data(self) -> None:
        """The data of a resumed run must be what it was."""
        path, found = self.path / "data.json", self.objective.fingerprints
        if not path.exists():
            with explained(f"write into {self.path}"):
                write_json(path, found)
                if (reading := self.objective.reading()) is not None:
                    write_json(self.path / "reader.json", reading)
        elif read_json(path) != found:
            raise RunError(
                f"the data of {self.config.task} is not what {self.path} began with; expected the "
                "same files"
            )

    def _make_loop(self, last: checkpoint.Checkpoint | None) -> Loop:
        config = self.config
        seed_random(self.fabric.device, config.seed, "weights")
        model = self.objective.model()
        self.parameters = sum(p.numel() for p in model.parameters())
        optimizer = make_optimizer(
            config.optimizer, model.parameters(), lr=config.lr, weight_decay=config.weight_decay
        )
        self.bare_model, self.bare_optimizer = model, optimizer
        ready, steps = self.fabric.setup(model, optimizer)
        loop = Loop(self.fabric, config, ready, steps, self.objective)
        if last is not None:
            if last.state["config"] != config.fingerprint():
                raise RunError(
                    f"{self.path / 'config.json'} was changed after the run began, or a version "
                    "with other settings began it; expected the settings of its checkpoints"
                )
            average = {n: t for n, t in last.weights.items() if n.startswith(AVERAGE)}
            tracked = {n: t for n, t in last.weights.items() if n.startswith(PREFIX)}
            if self.tracker is not None:
                self.tracker.state = tracked
            own = {n: t for n, t in last.weights.items() if n not in average and n not in tracked}
            model.load_state_dict(own)
            if loop.average is not None:
                for name, tensor in average.items():
                    loop.average.weights[name.removeprefix(AVERAGE)].copy_(tensor)
            checkpoint.load_optimizer_state(model, optimizer, last.optimizer, last.scalars)
            loop.continue_from(Progress.from_dict(last.state["progress"], loop.batches))
            if loop.progress.best is not None:
                best = last.best or self._read_best(loop.progress.best["epoch"])
                loop.best_weights = {n: t.to(self.fabric.device) for n, t in best.items()}
        return loop

    # -- save ------------------------------------------------------------------------------------

    def _save(self) -> None:
        """Write the best weights, for those who look into the folder, then a checkpoint.

        A crash between the two leaves weights of a later epoch than the checkpoint knows. So it
        holds its own: where numbers are not the same to the last bit, as on another device, the
        resumed run need not find that epoch to be the best again.
        """
        if self.metrics is None:
            return
        progress = self.loop.progress
        if self.loop.best_weights and progress.best and progress.best["epoch"] != self.saved_best:
            self._write_best(progress.best)
        tensors, scalars = checkpoint.optimizer_state(self.bare_model, self.bare_optimizer)
        state = {
            "progress": progress.to_dict(),
            "metrics_bytes": self.metrics.save(),
            "config": self.config.fingerprint(),
        }
        weights = dict(self.bare_model.state_dict())
        if self.loop.average is not None:
            weights |= {AVERAGE + name: t for name, t in self.loop.average.weights.items()}
        if self.tracker is not None:
            weights |= self.tracker.state
        whole = checkpoint.Checkpoint(weights, tensors, scalars, state, self.loop.best_weights)
        checkpoint.save(self.checkpoint_folder, progress.step, whole)
        self.saved_at = time.monotonic()

    def _write_best(self, best: dict[str, Any]) -> None:
        facts = {"epoch": best["epoch"], **self.objective.selection_facts, **best}
        with explained(f"save the best weights in {self.path}"):
            weights = checkpoint.tensors_to_bytes(self.loop.best_weights)
            write_bytes(self.path / "best.safetensors", weights)
            write_json(self.path / "best.json", facts)
        self.saved_best = best["epoch"]

    def _read_best(self, epoch: int) -> dict[str, Tensor]:
        """The weights of the best epoch, for a checkpoint of an earlier version without them.

        None if they are of a later epoch: the run comes by it again, and if it is not the best
        again, `_result` refuses.
        """
        path = self.path / "best.safetensors"
        if read_json(self.path / "best.json")["epoch"] != epoch:
            return {}
        try:
            return checkpoint.tensors_from_bytes(path.read_bytes())
        except (OSError, SafetensorError) as error:
            raise RunError(f"cannot read {path}: {error}") from error

    # -- end -------------------------------------------------------------------------------------

    def _result(self) -> RunResult:
        """Of the weights that count: those of the best epoch, or of the last."""
        loop, objective = self.loop, self.objective
        best = loop.progress.best
        if best is not None and not loop.best_weights:
            raise RunError(
                f"{self.path} has lost the weights of its best epoch, {best['epoch']}; delete "
                f"{self.checkpoint_folder} to train from the beginning"
            )
        loop.model.load_state_dict(loop.best_weights if objective.kept else loop.weights())
        if self.writes and not objective.kept:
            with explained(f"write into {self.path}"):
                weights = checkpoint.tensors_to_bytes(self.bare_model.state_dict())
                write_bytes(self.path / "last.safetensors", weights)
        last = next(iter(loop.progress.last.values()), 0.0)
        found = objective.result(self.fabric, loop.model, Ended(best, last, loop.last))
        if self.writes and (memory := objective.memory(self.bare_model)):
            with explained(f"write into {self.path}"):
                write_bytes(self.path / MEMORY, checkpoint.tensors_to_bytes(memory))
        return objective.result_class(
            run=self.path,
            seconds=loop.seconds(),
            parameters=self.parameters,
            peak_memory_mb=peak_memory_mb(),
            **found,
        )


def peak_memory_mb() -> float:
    """The most memory that this process has had resident so far."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (2**20 if sys.platform == "darwin" else 2**10)


@contextmanager
def asked_by_signals(ask: Callable[[], None]) -> Iterator[None]:
    """While in it, Ctrl-C, SIGTERM and SIGHUP (a closed terminal) ask to stop; a second Ctrl-C
    interrupts at once. What is ignored, as SIGHUP under nohup, stays ignored."""
    if current_thread() is not main_thread():  # where signals cannot be handled
        yield
        return

    def handle(number: int, frame: object) -> None:
        signal(SIGINT, default_int_handler)
        ask()

    before = {number: getsignal(number) for number in (SIGINT, SIGTERM, SIGHUP)}
    if before[SIGHUP] is SIG_IGN:
        del before[SIGHUP]
    for number in before:
        signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal(number, handler)
