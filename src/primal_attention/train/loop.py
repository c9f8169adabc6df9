"""The training loop: batches, losses, steps, epochs. It knows nothing of files.

for event in Loop(fabric, config, model, optimizer, train, selection, "validation"):
    ...    # after each step and epoch; `loop.progress` is then a state to continue from
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn, cast

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.nn import functional as F

from ..runs.errors import NotFiniteError
from ..tasks.buckets import bucket_batches
from ..tasks.examples import Batch, Examples
from ..theory.loss import ksvd_loss
from .average import Average, in_use
from .config import RunConfig
from .diagnose import describe
from .evaluate import TOKENS, evaluate, similar_lengths
from .events import EpochEvent, StepEvent
from .layers import CASES, LayerRecord, primal_layers
from .order import batches, from_step, learning_rate, seed_random, share


@dataclass
class Best:
    """The epoch with the highest accuracy, among equals the one with the lowest loss."""

    epoch: int
    accuracy: float
    loss: float

    def beaten_by(self, other: Best) -> bool:
        return (other.accuracy, -other.loss) > (self.accuracy, -self.loss)


@dataclass
class Progress:
    """How far a run is. With the weights and the optimiser's state, all that it needs to go on."""

    epoch: int = 1  # the one under way
    batch: int = 0  # batches of it that are done
    step: int = 0  # steps done in all
    cases: int = 0  # of the epoch so far
    task_sum: float = 0.0  # over them
    ksvd_sum: float = 0.0
    best: Best | None = None
    last_accuracy: float = 0.0
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)  # JSON keeps floats to the last bit

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Progress:
        best = values["best"]
        return cls(**{**values, "best": None if best is None else Best(**best)})


class Loop:
    """Trains a model that Fabric has set up; iterating yields an event after each step and epoch.

    Set `stop` to end after the step under way; `stopped` then tells. `best_weights` are those of
    the best epoch so far. Several processes share each batch, and their gradients are those of one.
    """

    def __init__(
        self,
        fabric: Fabric,
        config: RunConfig,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        train: Examples,
        selection: Examples,
        split: str,
    ) -> None:
        self.fabric, self.config, self.model, self.optimizer = fabric, config, model, optimizer
        self.train, self.selection, self.split = train, selection, split
        self.progress = Progress()
        self.average = None if config.ema is None else Average(model, config.ema)
        self.best_weights: dict[str, Tensor] = {}
        self.pass_batches = math.ceil(len(train) / config.batch_size)
        self.batches = config.epoch_steps or self.pass_batches  # of an epoch
        self.steps = self.batches * config.epochs
        self.eta = config.eta if "primal" in config.attention else 0.0
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

    def __iter__(self) -> Iterator[StepEvent | EpochEvent]:
        while self.progress.epoch <= self.config.epochs:
            epoch = self.progress.epoch
            self.model.train()
            step, last = self.progress.step, epoch * self.batches
            for indices in from_step(self._pass, self.pass_batches, step, last):
                yield self._step(indices)
                if self._stops():
                    return
            yield self._end_epoch()
            if self._stops():
                return

    def _pass(self, number: int) -> list[list[int]]:
        config = self.config
        if config.batching == "bucket":
            return bucket_batches(self.train.lengths, config.batch_size, config.seed, number)
        return batches(len(self.train), config.batch_size, config.seed, number)

    def _stops(self) -> bool:
        if self.fabric.world_size == 1:  # several have agreed on it in `_measure`
            self.stopped = self.stop
        return self.stopped

    # -- one step --------------------------------------------------------------------------------

    def _step(self, indices: list[int]) -> StepEvent:
        progress, fabric = self.progress, self.fabric
        own = share(indices, fabric.global_rank, fabric.world_size)
        # without a share: somebody's case with weight zero, since all must take part
        self._seed()
        batch = fabric.to_device(self.train.__getitems__(own or indices[:1]))
        # DDP takes the mean over processes; this makes it the mean over cases
        weight = len(own) * fabric.world_size / len(indices)
        task, ksvd = self._losses(batch)
        loss = task if ksvd is None else task + self.eta * ksvd
        self.optimizer.zero_grad()
        fabric.backward(loss if weight == 1.0 else loss * weight)
        norm = torch.nn.utils.get_total_norm(self._gradients())
        task_loss, ksvd_value, grad_norm = self._measure(task, ksvd, norm, weight)
        if not math.isfinite(task_loss + ksvd_value + grad_norm):
            self._fail(batch, task_loss, ksvd_value)
        lr = learning_rate(self.config, progress.step, self.steps)
        self._update(lr, grad_norm)
        progress.step += 1
        progress.batch += 1
        progress.cases += len(indices)
        progress.seconds = self.seconds()
        progress.task_sum += task_loss * len(indices)
        progress.ksvd_sum += ksvd_value * len(indices)
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
        step, rank = self.progress.step, self.fabric.global_rank
        seed_random(self.fabric.device, self.config.seed, step, rank)

    def _losses(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Means over the cases of a batch: cross-entropy and the KSVD loss (10)."""
        logits = self.model(batch.inputs, batch.padding)
        smoothing = self.config.label_smoothing
        task = F.cross_entropy(logits, batch.targets, label_smoothing=smoothing)
        return task, ksvd_loss(self.model) if self.eta else None

    def _measure(
        self, task: Tensor, ksvd: Tensor | None, norm: Tensor, weight: float
    ) -> tuple[float, float, float]:
        """The losses over all processes, and the norm, in one transfer from the device."""
        zero = task.new_zeros(())
        values = torch.stack([task, zero if ksvd is None else ksvd, norm]).detach()
        if self.fabric.world_size > 1:
            values[:2] *= weight
            everything = torch.cat([values, values.new_tensor([self.stop])])
            values = cast(Tensor, self.fabric.all_reduce(everything, reduce_op="mean"))
            self.stopped = values[3].item() > 0  # all processes stop after the same step
        task_loss, ksvd_value, grad_norm = values[:3].tolist()
        return task_loss, ksvd_value, grad_norm

    @torch.no_grad()
    def _update(self, lr: float, grad_norm: float) -> None:
        clip = self.config.clip
        if clip is not None and grad_norm > clip:
            torch._foreach_mul_(self._gradients(), clip / grad_norm)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()
        if self.average is not None:
            self.average.update(self.model)

    def _gradients(self) -> list[Tensor]:
        return [p.grad for p in self._parameters if p.grad is not None]

    def _fail(self, batch: Batch, task_loss: float, ksvd_value: float) -> NoReturn:
        """Raise; the weights are still those before the step."""
        progress = self.progress
        if not math.isfinite(task_loss):
            term = f"the task loss is {task_loss}"
        elif not math.isfinite(ksvd_value):
            term = f"the KSVD loss is {ksvd_value}"
        else:
            term = "the losses are finite but the gradient is not"
        self._seed()  # the same dropout again
        where = describe(self.model, batch)
        raise NotFiniteError(
            f"training stopped in epoch {progress.epoch}, step {progress.step + 1}: {term}{where}"
        )

    # -- the end of an epoch ---------------------------------------------------------------------

    def _end_epoch(self) -> EpochEvent:
        progress = self.progress
        with in_use(self.average, self.model):
            found = evaluate(self.fabric, self.model, self.selection)
            layers = self._primal_layers()
        if not math.isfinite(found.loss):
            raise NotFiniteError(
                f"training stopped in epoch {progress.epoch}: the {self.split} loss is {found.loss}"
            )
        this = Best(progress.epoch, found.accuracy, found.loss)
        if progress.best is None or progress.best.beaten_by(this):
            progress.best = this
            self._keep_weights()
        progress.seconds = self.seconds()
        event = EpochEvent(
            epoch=progress.epoch,
            epochs=self.config.epochs,
            step=progress.step,
            task_loss=progress.task_sum / progress.cases,
            ksvd_loss=progress.ksvd_sum / progress.cases if self.eta else None,
            split=self.split,
            accuracy=found.accuracy,
            loss=found.loss,
            best_epoch=progress.best.epoch,
            best_accuracy=progress.best.accuracy,
            seconds=progress.seconds,
            primal_layers=layers,
        )
        progress.epoch += 1
        progress.batch, progress.cases = 0, 0
        progress.task_sum, progress.ksvd_sum = 0.0, 0.0
        progress.last_accuracy = found.accuracy
        return event

    def _primal_layers(self) -> dict[str, LayerRecord]:
        """J and Lambda on the first cases of the selection; every process looks at them all."""
        groups = similar_lengths(self.selection.lengths[:CASES].numpy(), TOKENS)
        looked_at = (self.fabric.to_device(self.selection.__getitems__(g)) for g in groups)
        return primal_layers(self.model, ((one.inputs, one.padding) for one in looked_at))

    def _keep_weights(self) -> None:
        weights = self.model.state_dict()
        if self.average is not None:
            weights = self.average.for_model(self.model)
        for name, tensor in weights.items():
            if name in self.best_weights:
                self.best_weights[name].copy_(tensor)
            else:
                self.best_weights[name] = tensor.detach().clone()
