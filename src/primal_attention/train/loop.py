"""The training loop: batches, losses, steps, epochs. It knows nothing of files, and of what is
learned only what the objective says.

for event in Loop(fabric, config, model, optimizer, objective):
    ...    # after each step and epoch; `loop.progress` is then a state to continue from
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn, cast

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from ..runs.errors import NotFiniteError
from ..tasks.objective import Found, Objective
from ..theory.loss import Growth, grown, ksvd_loss
from ..theory.squares import Square
from .average import Average, in_use
from .config import EngineConfig
from .diagnose import describe
from .events import EpochEvent, StepEvent
from .layers import LayerRecord, primal_layers
from .order import from_step, learning_rate, seed_random, share


@dataclass
class Progress:
    """How far a run is. With the weights and the optimiser's state, all that it needs to go on."""

    epoch: int = 1  # the one under way
    batch: int = 0  # batches of it that are done
    step: int = 0  # steps done in all
    cases: int = 0  # of the epoch so far, or batches: what its losses are means over
    task_sum: float = 0.0  # over them
    ksvd_sum: float = 0.0
    best: dict[str, Any] | None = None  # the epoch, and what the objective keeps of it
    last: dict[str, float] = field(default_factory=dict)  # {"last_<measured>": of the last epoch}
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it, which keeps floats to the last bit."""
        values = dataclasses.asdict(self)
        last: dict[str, Any] = values.pop("last")
        return values | last

    @classmethod
    def from_dict(cls, values: dict[str, Any], batches: int) -> Progress:
        """The inverse, where an epoch has so many batches."""
        if "epoch" not in values:  # as runs that learn to act had it in earlier versions
            done, within = divmod(values["step"], batches)
            waits = done > 0 and within == 0 and values["task_sum"] != 0  # for its evaluation
            within = batches if waits else within
            place = {"epoch": done + (not waits), "batch": within, "cases": within}
            values = values | place | {"best": None}
        names = {f.name for f in dataclasses.fields(cls)} - {"last"}
        known = {name: value for name, value in values.items() if name in names}
        return cls(**known, last={k: v for k, v in values.items() if k not in names})


class Loop:
    """Trains a model that Fabric has set up; iterating yields an event after each step and epoch.

    Set `stop` to end after the step under way; `stopped` then tells. `best_weights` are those of
    the best epoch so far, if the objective keeps it; `last` is what the evaluation after the last
    epoch found. Several processes share each batch, and their gradients are those of one.
    """

    def __init__(
        self,
        fabric: Fabric,
        config: EngineConfig,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        objective: Objective[Any, Any],
    ) -> None:
        self.fabric, self.config, self.model, self.optimizer = fabric, config, model, optimizer
        self.objective, self.examples = objective, objective.examples
        self.progress = Progress(last=self._named(0.0))
        self.average = None if config.ema is None else Average(model, config.ema)
        self.best_weights: dict[str, Tensor] = {}
        self.last: Found | None = None
        self.pass_batches = math.ceil(len(self.examples) / config.batch_size)
        self.batches = config.epoch_steps or self.pass_batches  # of an epoch
        self.steps = self.batches * config.epochs
        self.eta = config.eta if "primal" in config.attention else 0.0
        self.square, self.growth = (
            cast(Square, config.ksvd_square),
            cast(Growth, config.ksvd_growth),
        )
        self.stop = self.stopped = False
        self._began = time.monotonic()
        self._parameters = [p for p in model.parameters() if p.requires_grad]

    def continue_from(self, progress: Progress) -> None:
        """Go on from a state, once the model and the optimiser have theirs."""
        self.progress = progress
        self._began = time.monotonic() - progress.seconds

    def seconds(self) -> float:
        """Time at work, without interruptions."""
        return time.monotonic() - self._began

    def weights(self) -> dict[str, Tensor]:
        """Those that count now: the averages, or the model's."""
        if self.average is not None:
            return self.average.for_model(self.model)
        return self.model.state_dict()

    def __iter__(self) -> Iterator[StepEvent | EpochEvent]:
        while self.progress.epoch <= self.config.epochs:
            epoch = self.progress.epoch
            self.model.train()
            step, last = self.progress.step, epoch * self.batches
            for indices in from_step(self.objective.batches, self.pass_batches, step, last):
                yield self._step(indices)
                if self._stops():
                    return
            yield self._end_epoch()
            if self._stops():
                return

    def _stops(self) -> bool:
        if self.fabric.world_size == 1:  # several have agreed on it in `_measure`
            self.stopped = self.stop
        return self.stopped

    # -- one step --------------------------------------------------------------------------------

    def _step(self, indices: list[int]) -> StepEvent:
        progress, fabric = self.progress, self.fabric
        own = share(indices, fabric.global_rank, fabric.world_size)
        self._seed()
        # without a share: somebody's case with weight zero, since all must take part
        batch = fabric.to_device(self.examples.__getitems__(own or indices[:1]))
        task = self.objective.loss(self.model, batch)
        ksvd = ksvd_loss(self.model, square=self.square) if self.eta else None
        weights = self._weights(own, indices)
        self.optimizer.zero_grad()
        fabric.backward(self._total(task, ksvd, weights))
        norm = torch.nn.utils.get_total_norm(self._gradients())
        task_loss, ksvd_value, grad_norm = self._measure(task, ksvd, norm, weights)
        if not math.isfinite(task_loss + ksvd_value + grad_norm):
            self._fail(batch, task_loss, ksvd_value)
        lr = learning_rate(self.config, progress.step, self.steps)
        self._update(lr, grad_norm)
        count = len(indices) if self.objective.mean_over_cases else 1
        progress.step += 1
        progress.batch += 1
        progress.cases += count
        progress.seconds = self.seconds()
        progress.task_sum += task_loss * count
        progress.ksvd_sum += ksvd_value * count
        return StepEvent(
            epoch=progress.epoch,
            step=progress.step,
            steps=self.steps,
            batch=progress.batch,
            batches=self.batches,
            task_loss=task_loss,
            ksvd_loss=ksvd_value if self.eta else None,
            grad_norm=grad_norm,
            lr=lr,
        )

    def _seed(self) -> None:
        """The random numbers of a step depend on nothing else."""
        key = self.objective.random_key(self.progress.step, self.fabric.global_rank)
        seed_random(self.fabric.device, self.config.seed, *key)

    def _weights(self, own: list[int], indices: list[int]) -> tuple[float, float]:
        """Of the task loss and the KSVD loss of this process's share. DDP takes the mean over
        processes; they make it the mean over the terms of the loss, and over the cases."""
        world, terms = self.fabric.world_size, self.objective.terms
        if world == 1:
            return 1.0, 1.0
        return terms(own) * world / terms(indices), len(own) * world / len(indices)

    def _total(self, task: Tensor, ksvd: Tensor | None, weights: tuple[float, float]) -> Tensor:
        of_task, of_ksvd = weights
        ksvd = None if ksvd is None else grown(ksvd, self.growth)
        if ksvd is not None and of_task != of_ksvd:
            return of_task * task + self.eta * of_ksvd * ksvd
        loss = task if ksvd is None else task + self.eta * ksvd
        return loss if of_task == 1.0 else loss * of_task

    def _measure(
        self, task: Tensor, ksvd: Tensor | None, norm: Tensor, weights: tuple[float, float]
    ) -> tuple[float, float, float]:
        """The losses over all processes, and the norm, in one transfer from the device."""
        zero = task.new_zeros(())
        values = torch.stack([task, zero if ksvd is None else ksvd, norm]).detach()
        if self.fabric.world_size > 1:
            values[:2] *= values.new_tensor(weights)
            everything = torch.cat([values, values.new_tensor([self.stop])])
            values = cast(Tensor, self.fabric.all_reduce(everything, reduce_op="mean"))
            self.stopped = values[3].item() > 0  # all processes stop after the same step
        task_loss, ksvd_value, grad_norm = values[:3].tolist()
        return task_loss, ksvd_value, grad_norm

    @torch.no_grad()
    def _update(self, lr: float, grad_norm: float) -> None:
        self.objective.clip_(self._gradients(), grad_norm)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()
        if self.average is not None:
            self.average.update(self.model)

    def _gradients(self) -> list[Tensor]:
        return [p.grad for p in self._parameters if p.grad is not None]

    def _fail(self, batch: Any, task_loss: float, ksvd_value: float) -> NoReturn:
        """Raise; the weights are still those before the step."""
        progress = self.progress
        if not math.isfinite(task_loss):
            term = f"the task loss is {task_loss}"
        elif not math.isfinite(ksvd_value):
            term = f"the KSVD loss is {ksvd_value}"
        else:
            term = "the losses are finite but the gradient is not"
        self._seed()  # the same dropout again
        where = describe(self.model, self.objective.inputs(batch))
        raise NotFiniteError(
            f"training stopped in epoch {progress.epoch}, step {progress.step + 1}: {term}{where}"
        )

    # -- the end of an epoch ---------------------------------------------------------------------

    def _end_epoch(self) -> EpochEvent:
        progress, measure = self.progress, self.objective.result_class.measure
        found, share = None, None
        with in_use(self.average, self.model):
            if self.objective.looks_after(progress.epoch):
                found = self.objective.evaluate(self.fabric, self.model, progress.epoch)
            layers = self._primal_layers()
        if found is not None:
            if self.objective.kept:
                self._choose(found)
            self.last, figure = found, found.metrics[measure.key]
            progress.last, share = self._named(figure), measure.share(figure)
        best, progress.seconds = progress.best, self.seconds()
        event = EpochEvent(
            epoch=progress.epoch,
            epochs=self.config.epochs,
            step=progress.step,
            task_loss=progress.task_sum / progress.cases,
            ksvd_loss=progress.ksvd_sum / progress.cases if self.eta else None,
            found=found,
            share=share,
            best_epoch=best["epoch"] if best else None,
            best_share=measure.share(best[measure.key]) if best else None,
            seconds=progress.seconds if self.objective.tells_seconds else None,
            primal_layers=layers,
        )
        progress.epoch += 1
        progress.batch, progress.cases = 0, 0
        progress.task_sum, progress.ksvd_sum = 0.0, 0.0
        return event

    def _named(self, figure: float) -> dict[str, float]:
        """The measured figure of the last epoch, where another one may count."""
        key = self.objective.result_class.measure.key
        return {f"last_{key}": figure} if self.objective.kept else {}

    def _choose(self, found: Found) -> None:
        """Keep the epoch if it is better than those before."""
        kept = {name: found.metrics[name] for name in self.objective.kept}
        numbers = {"epoch": self.progress.epoch, **kept}
        best, rank = self.progress.best, self.objective.rank
        if best is not None and rank(numbers) <= rank(best):
            return
        self.progress.best = numbers
        for name, tensor in self.weights().items():
            if name in self.best_weights:
                self.best_weights[name].copy_(tensor)
            else:
                self.best_weights[name] = tensor.detach().clone()

    def _primal_layers(self) -> dict[str, LayerRecord]:
        """J and Lambda on some cases; every process looks at them all."""
        batches = map(self.fabric.to_device, self.objective.looked_at())
        return primal_layers(self.model, map(self.objective.inputs, batches))
