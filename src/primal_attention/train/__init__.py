"""The training engine: runs in folders, that can be stopped anywhere and continued exactly.

from primal_attention.train import RunConfig, resume, train

result = train(RunConfig(task="uea/JapaneseVowels", attention=("softmax", "primal")))
print(result.label, result.accuracy, result.run)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ..runs.errors import NotFiniteError, RunError
from ..runs.folder import settle
from ..runs.metrics import read_metrics
from ..tasks.objective import RunResult
from .config import DecisionConfig, EngineConfig, RunConfig
from .events import Audience, EpochEvent, Observer, RunStart, StepEvent
from .launch import is_main_process, processes
from .run import begin, go_on, read_config, read_result
from .seeds import SEEDS_FILE, SeedsResult, begin_seeds, check_seeds, go_on_seeds, read_seeds

if TYPE_CHECKING:
    from lightning_fabric import Fabric

__all__ = [
    "DecisionConfig",
    "EpochEvent",
    "NotFiniteError",
    "Observer",
    "RunConfig",
    "RunError",
    "RunResult",
    "RunStart",
    "SeedsResult",
    "StepEvent",
    "is_main_process",
    "read_metrics",
    "resume",
    "train",
    "train_seeds",
]


def train(
    config: EngineConfig,
    *,
    root: Path | str = "runs",
    name: str | None = None,
    observer: Observer | None = None,
) -> RunResult:
    """Train in a new folder under root, `<task>-<attention>-<n>` unless it has a name.

    Ctrl-C, SIGTERM and SIGHUP end it with a checkpoint and a KeyboardInterrupt; whatever ends it,
    `resume` continues as if nothing had happened, on a CPU to the last bit.
    """
    config.validate()
    config = config.resolved()
    with _observed(config, observer) as fabric:
        return begin(fabric, config, root=root, name=name, observer=observer)


def train_seeds(
    config: EngineConfig,
    seeds: Sequence[int],
    *,
    root: Path | str = "runs",
    name: str | None = None,
    observer: Observer | None = None,
) -> SeedsResult:
    """Train once per seed, in one folder; a seed whose training fails does not end the others."""
    check_seeds(config, seeds)
    config = config.resolved()
    with _observed(config, observer) as fabric:
        return begin_seeds(fabric, config, seeds, root=root, name=name, observer=observer)


def resume(run: Path | str, *, observer: Observer | None = None) -> RunResult | SeedsResult:
    """Continue a run, or a folder of seeds, where it stopped; a finished run gives its result."""
    run = Path(run)
    if (run / SEEDS_FILE).exists():
        config, _ = read_seeds(run)
        with _observed(config, observer) as fabric:
            return go_on_seeds(fabric, run, observer=observer)
    if result := read_result(run):
        settle(run)
        return result
    with _observed(read_config(run), observer) as fabric:
        return go_on(fabric, run, observer=observer)


@contextmanager
def _observed(config: EngineConfig, observer: Observer | None) -> Iterator[Fabric]:
    """The processes of a run; in the first one, the observer hears of stores that are built."""
    with processes(config) as fabric:
        from ..tasks.stores import heard_by  # imports torch

        audience = Audience(observer if fabric.is_global_zero else None, _interrupt)
        with heard_by(lambda event: audience.tell("building", event)):
            yield fabric


def _interrupt() -> NoReturn:
    raise KeyboardInterrupt  # nothing is under way that should end first
