"""What a run learns, and how it is judged: the only thing in which trainings differ.

The engine draws batches, makes steps, saves, resumes and reports. An objective says what a batch
is, what its loss is, what an epoch is worth and which one is kept, and what is told of all that.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Self, TypeVar

from .settings import EngineConfig

if TYPE_CHECKING:
    from lightning_fabric import Fabric
    from torch import Tensor, nn

    from .base import Task

Config = TypeVar("Config", bound=EngineConfig)
Batch = TypeVar("Batch")
Command = Callable[..., str]  # the command that trains with other attentions or options


class Measure(NamedTuple):
    """What runs are compared by: a figure in result.json and in the epochs of metrics.jsonl, both
    under the name `key`. `whole` is what counts as all there is."""

    name: str
    unit: str
    key: str
    whole: float
    least: float = 0.0  # a share of the whole; what is explained can be less than nothing

    @property
    def axis(self) -> str:
        return f"{self.name}, {self.unit}" if self.unit else self.name

    def share(self, documented: float) -> float:
        """Of the whole."""
        return documented / self.whole

    def shown(self, documented: float) -> float:
        """In hundredths of the whole."""
        return documented * (100 / self.whole)

    def clip(self, value: float) -> float:
        """A per cent lies between 0, or the least, and 100."""
        return min(max(value, self.least), 100.0) if self.unit == "%" else value

    def text(self, value: float) -> str:
        return f"{value:.1f}\N{NO-BREAK SPACE}{self.unit}" if self.unit else f"{value:.1f}"


@dataclass(frozen=True)
class Found:
    """What an evaluation after an epoch has found: the metrics go into metrics.jsonl, `text` is
    what a person reads, `whole` whatever else the objective wants back for the result."""

    metrics: Mapping[str, Any]
    text: str
    whole: Any = None


class Ended(NamedTuple):
    """How a run ended: `best` has the epoch that was chosen, if any, and what was kept of it. Of
    the last epoch, `last` is the measured figure, and `found` the evaluation, unless the run was
    resumed after it."""

    best: Mapping[str, Any] | None
    last: float
    found: Found | None


@dataclass(frozen=True, kw_only=True)
class RunResult(ABC):
    """What a run is worth; an objective has more to say. peak_memory_mb is the most that the main
    process ever had in memory."""

    measure: ClassVar[Measure]

    run: Path
    seconds: float
    parameters: int
    peak_memory_mb: float
    status: str = "finished"

    @property
    @abstractmethod
    def meaning(self) -> str:
        """What the measured figure is."""

    @property
    def figure(self) -> float:
        """What the run is compared by, as the documents have it."""
        return float(getattr(self, self.measure.key))

    @property
    def share(self) -> float:
        return self.measure.share(self.figure)

    @property
    def selected(self) -> float:
        """The share on the set that chose the epoch: what settings may be compared by."""
        return self.share

    @property
    def cases(self) -> int | None:
        """How many cases the figure is a mean over, where they are independent."""
        return None

    @property
    def of_unseen(self) -> bool:
        """Whether the figure is one of data that chose nothing."""
        return True

    @property
    def terms(self) -> dict[str, str]:
        """Under which the figure was found, in words; the seeds of a run share them."""
        return {}

    @abstractmethod
    def rows(self, command: Command) -> dict[str, str]:
        """What a person reads of a run that is done."""

    @classmethod
    @abstractmethod
    def told(
        cls, result: Mapping[str, Any], epochs: Sequence[Mapping[str, Any]]
    ) -> tuple[str, str]:
        """What the figure is, and what epochs were judged by, from result.json and the epochs of
        metrics.jsonl."""

    @classmethod
    @abstractmethod
    def seed_documents(cls, results: Mapping[int, Self]) -> dict[str, Any]:
        """What summary.json says of the figures of several seeds."""

    @classmethod
    @abstractmethod
    def seed_rows(cls, results: Mapping[int, Self], mean: str, command: Command) -> dict[str, str]:
        """What a person reads of several seeds; `mean` is their mean figure with its interval."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it; the folder is left out, so that it can be moved."""
        names = [f.name for f in dataclasses.fields(self) if f.name != "run"]
        common = {f.name for f in dataclasses.fields(RunResult)}
        values = {name: getattr(self, name) for name in sorted(names, key=common.__contains__)}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}

    @classmethod
    def from_dict(cls, run: Path, values: Mapping[str, Any]) -> Self:
        return cls(**{**values, "run": run})


class Objective(ABC, Generic[Config, Batch]):
    """The objective of one run: its settings and its data. `examples` is what is trained on:
    `len(examples)` cases, of which `examples.__getitems__(indices)` makes a batch."""

    kept: ClassVar[tuple[str, ...]] = ()  # metrics that order epochs; without any the last counts
    result_class: ClassVar[type[RunResult]]
    pictures: ClassVar[tuple[str, ...]] = ("curves",)  # that are drawn of a finished run
    stops_early: ClassVar[bool] = True  # epochs are sure enough to stop a run that looks hopeless

    mean_over_cases: ClassVar[bool] = True  # the losses of an epoch, else over its batches
    tells_seconds: ClassVar[bool] = True  # of an epoch, in metrics.jsonl

    config: Config
    examples: Any
    fingerprints: dict[str, str]  # of the data, by split: a resumed run must find it again
    model: Callable[[], nn.Module]  # makes one with random weights
    test: Callable[[], Any] = staticmethod(lambda: None)  # reads the test set, if there is one

    @classmethod
    @abstractmethod
    def load(cls, task: Task, config: Config) -> Self:
        """Read the data of a run."""

    def reading(self) -> dict[str, Any] | None:
        """How a trained model reads new data: what the training part has taught, for reader.json;
        None where a model alone has no use."""
        return None

    def memory(self, model: nn.Module) -> Mapping[str, Tensor]:
        """What a trained model, which has the weights that count, has to know beside them: tensors
        for memory.safetensors; none of most."""
        return {}

    @property
    def selection_facts(self) -> dict[str, str]:
        """On what the best epoch is chosen, for best.json."""
        return {}

    # -- a step ----------------------------------------------------------------------------------

    @abstractmethod
    def batches(self, number: int) -> list[list[int]]:
        """The indices of the batches of a pass over the examples, passes counted from 1: a function
        of the seed and the number alone. All passes have as many."""

    @abstractmethod
    def inputs(self, batch: Batch) -> Sequence[Any]:
        """The arguments of the model."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """The loss of a batch, a mean over its terms."""

    def terms(self, indices: Sequence[int]) -> int:
        """How many terms these cases have in the mean of the loss; a batch is shared by them."""
        return len(indices)

    def random_key(self, step: int, rank: int) -> tuple[int, ...]:
        """What the random numbers of a step depend on, beside the seed."""
        return step, rank

    def clip_(self, gradients: list[Tensor], norm: float) -> None:
        """Bound the norm of the gradients by `config.clip`."""
        import torch

        if self.config.clip is not None and norm > self.config.clip:
            torch._foreach_mul_(gradients, self.config.clip / norm)

    # -- an epoch and the end --------------------------------------------------------------------

    @abstractmethod
    def evaluate(self, fabric: Fabric, model: nn.Module, epoch: int) -> Found:
        """What a model is worth after an epoch. All processes call it and find the same."""

    def looks_after(self, epoch: int) -> bool:
        """Whether a model is evaluated after an epoch, which may then be the best one; always after
        the last."""
        return True

    def rank(self, numbers: Mapping[str, float]) -> tuple[float, ...]:
        """Orders epochs by the metrics that are kept of them: greater is better."""
        return tuple(numbers[name] for name in self.kept)

    @abstractmethod
    def looked_at(self) -> Iterable[Batch]:
        """Some cases on which the primal layers are looked at after an epoch."""

    @abstractmethod
    def result(self, fabric: Fabric, model: nn.Module, ended: Ended) -> dict[str, Any]:
        """The fields of `result_class` that the engine does not know. The model has the weights
        that count."""

    @abstractmethod
    def opening(self, parameters: int, steps: int) -> str:
        """The line with which a run begins."""
