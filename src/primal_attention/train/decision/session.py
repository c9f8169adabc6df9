"""A run at work in its folder, from its last checkpoint or from the beginning."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from ...models.decision import DecisionTransformer
from ...runs.errors import NotFiniteError, RunError
from ...runs.files import explained, read_json, write_bytes, write_json
from ...runs.metrics import MetricsFile
from ...tasks.rl import Contexts, Evaluation, RLTask, Trajectories, evaluate, make_agent
from ...tasks.rl.trajectories import ContextBatch
from ...theory.loss import ksvd_loss
from ..checkpoint import (
    Checkpoint,
    clean,
    load_latest,
    load_optimizer_state,
    optimizer_state,
    save,
    tensors_to_bytes,
)
from ..events import Audience, Observer, StepEvent
from ..layers import CASES, LayerRecord, primal_layers
from ..optim import make_optimizer
from ..order import batches, from_step, learning_rate, seed_random
from ..session import asked_by_signals, peak_memory_mb
from .config import DecisionConfig
from .events import DecisionEpoch, DecisionObserver, DecisionResult, DecisionStart

FINAL = 10_000  # stands for the last epoch in the seed of its episodes, however many there are


@dataclass
class Progress:
    """How far a run is."""

    step: int = 0  # done in all
    task_sum: float = 0.0  # over the steps of the epoch under way
    ksvd_sum: float = 0.0
    seconds: float = 0.0


class DecisionSession:
    """Trains a Decision Transformer; what a step is depends on (seed, step) alone, so a run that is
    cut anywhere goes on as if it had not been."""

    def __init__(
        self,
        config: DecisionConfig,
        task: RLTask,
        data: Trajectories,
        path: Path,
        observer: DecisionObserver | None,
    ) -> None:
        self.config, self.task, self.data, self.path = config, task, data, path
        self.device = _device(config.accelerator)
        self.settings = config.engine()
        self.examples = Contexts(data, config.context)
        self.pass_batches = math.ceil(len(self.examples) / config.batch_size)
        self.steps = config.epochs * config.epoch_steps
        self.eta = config.eta if "primal" in config.attention else 0.0
        self.stop = False
        self.last: Evaluation | None = None  # after the last epoch
        self._check_data()
        self.model = self._new_model()
        self.optimizer = make_optimizer(
            config.optimizer,
            self.model.parameters(),
            lr=config.lr,
            weight_decay=config.weight_decay,
        )
        self.checkpoints = path / "checkpoints"
        self.progress = Progress()
        keep = self._continue()
        clean(self.checkpoints, self.progress.step)
        self.metrics = MetricsFile(path / "metrics.jsonl", keep)
        self.audience = Audience(cast(Observer | None, observer), self._ask_to_stop)
        self.began = time.monotonic() - self.progress.seconds
        self.saved_at = time.monotonic()

    def run(self) -> DecisionResult:
        """Train to the end, or until asked to stop: then a KeyboardInterrupt after a checkpoint."""
        self.audience.tell("run_started", self._start())
        with asked_by_signals(self._ask_to_stop):
            for event in self._events():
                kind = "epoch" if isinstance(event, DecisionEpoch) else "step"
                self.metrics.add(kind, event.to_metrics())
                self.audience.tell(kind, event)
                if time.monotonic() - self.saved_at >= self.config.checkpoint_seconds:
                    self._save()
                if self.stop:
                    break
            self._save()
        if self.stop:
            raise KeyboardInterrupt
        result = self._result()
        with explained(f"write into {self.path}"):
            weights = tensors_to_bytes(self.model.state_dict())
            write_bytes(self.path / "last.safetensors", weights)
            write_json(self.path / "result.json", result.to_dict())
        self.audience.tell("finished", result)
        return result

    def close(self) -> None:
        self.metrics.close()

    def _ask_to_stop(self) -> None:
        self.stop = True

    # -- begin -----------------------------------------------------------------------------------

    def _check_data(self) -> None:
        """The data of a resumed run must be what it was."""
        path, found = self.path / "data.json", {"train": self.data.fingerprint()}
        if not path.exists():
            with explained(f"write into {self.path}"):
                write_json(path, found)
        elif read_json(path) != found:
            raise RunError(
                f"the data of {self.config.task} is not what {self.path} began with; expected the "
                "same files"
            )

    def _new_model(self) -> DecisionTransformer:
        seed_random(self.device, self.config.seed, "weights")
        data, environment = self.data, self.task.environment
        model = build_model(
            self.config,
            state_dim=data.observations.shape[1],
            action_dim=data.actions.shape[1],
            horizon=max(environment.horizon, int(data.lengths.max())),
        )
        model.set_scales_(
            state_mean=data.state_mean,
            state_std=data.state_std,
            action_scale=data.action_scale,
            return_scale=environment.return_scale,
        )
        self.parameters = sum(p.numel() for p in model.parameters())
        return model.to(self.device)

    def _continue(self) -> int:
        """Take up the last checkpoint; returns how many bytes of metrics.jsonl it stands for."""
        checkpoint = load_latest(self.checkpoints)
        if checkpoint is None:
            return 0
        if checkpoint.state["config"] != self.config.fingerprint():
            raise RunError(
                f"{self.path / 'config.json'} was changed after the run began; expected the "
                "settings of its checkpoints"
            )
        self.model.load_state_dict(checkpoint.weights)
        load_optimizer_state(self.model, self.optimizer, checkpoint.optimizer, checkpoint.scalars)
        self.progress = Progress(**checkpoint.state["progress"])
        return int(checkpoint.state["metrics_bytes"])

    def _start(self) -> DecisionStart:
        return DecisionStart(
            run=self.path,
            config=self.config,
            parameters=self.parameters,
            data=self.data.name,
            data_episodes=len(self.data),
            data_steps=self.data.steps,
            step=self.progress.step,
            steps=self.steps,
        )

    # -- steps and epochs ------------------------------------------------------------------------

    def _events(self) -> Iterator[StepEvent | DecisionEpoch]:
        config, progress = self.config, self.progress
        done, within = divmod(progress.step, config.epoch_steps)
        if done and not within and progress.task_sum:  # cut between the steps and the evaluation
            yield self._end_epoch(done)
        for epoch in range(done + 1, config.epochs + 1):
            last = epoch * config.epoch_steps
            for indices in from_step(self._pass, self.pass_batches, progress.step, last):
                yield self._step(epoch, indices)
            yield self._end_epoch(epoch)

    def _pass(self, number: int) -> list[list[int]]:
        return batches(len(self.examples), self.config.batch_size, self.config.seed, number)

    def _step(self, epoch: int, indices: list[int]) -> StepEvent:
        config, progress = self.config, self.progress
        seed_random(self.device, config.seed, progress.step)
        batch = ContextBatch(
            *(tensor.to(self.device) for tensor in self.examples.__getitems__(indices))
        )
        self.model.train()
        task, ksvd = self._losses(batch)
        self.optimizer.zero_grad()
        (task if ksvd is None else task + self.eta * ksvd).backward()
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        norm = torch.nn.utils.get_total_norm([cast(Tensor, p.grad) for p in parameters])
        zero = task.new_zeros(())
        found = torch.stack([task, zero if ksvd is None else ksvd, norm]).detach().tolist()
        if not all(map(math.isfinite, found)):
            raise NotFiniteError(
                f"training stopped in step {progress.step + 1}: the action loss is {found[0]}, "
                f"the KSVD loss {found[1]} and the gradient's norm {found[2]}"
            )
        if config.clip is not None:
            torch.nn.utils.clip_grads_with_norm_(parameters, config.clip, norm)
        lr = learning_rate(self.settings, progress.step, self.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()
        progress.step += 1
        progress.task_sum += found[0]
        progress.ksvd_sum += found[1]
        progress.seconds = time.monotonic() - self.began
        return StepEvent(
            epoch=epoch,
            step=progress.step,
            steps=self.steps,
            batch=progress.step - (epoch - 1) * config.epoch_steps,
            batches=config.epoch_steps,
            task_loss=found[0],
            ksvd_loss=found[1] if self.eta else None,
            grad_norm=found[2],
            lr=lr,
        )

    def _losses(self, batch: ContextBatch) -> tuple[Tensor, Tensor | None]:
        """The mean squared error of the actions, scaled to one, and the KSVD loss (10)."""
        predicted = self.model(*batch)
        wrong = ((predicted - batch.actions) / self.model.action_scale)[~batch.padding]
        return wrong.square().mean(), ksvd_loss(self.model) if self.eta else None

    def _end_epoch(self, epoch: int) -> DecisionEpoch:
        progress, steps = self.progress, self.config.epoch_steps
        found = self._evaluate(epoch)
        self.last = found if epoch == self.config.epochs else None
        event = DecisionEpoch(
            epoch=epoch,
            epochs=self.config.epochs,
            step=progress.step,
            task_loss=progress.task_sum / steps,
            ksvd_loss=progress.ksvd_sum / steps if self.eta else None,
            returned=found.mean,
            deviation=found.deviation,
            score=found.score,
            primal_layers=self._primal_layers(),
        )
        progress.task_sum = progress.ksvd_sum = 0.0
        progress.seconds = time.monotonic() - self.began
        return event

    def _primal_layers(self) -> dict[str, LayerRecord]:
        """J and Lambda on pieces that are spread over the data."""
        pieces = range(0, len(self.examples), math.ceil(len(self.examples) / CASES))
        batch = self.examples.__getitems__(list(pieces))
        return primal_layers(self.model, [[tensor.to(self.device) for tensor in batch]])

    def _evaluate(self, epoch: int) -> Evaluation:
        config = self.config
        number = FINAL if epoch == config.epochs else epoch
        return evaluate(
            make_agent(self.model, stream=config.stream),
            self.task.environment,
            episodes=config.episodes,
            target=config.target,
            seed=config.seed * 100 + number,
        )

    # -- save and end ----------------------------------------------------------------------------

    def _save(self) -> None:
        tensors, scalars = optimizer_state(self.model, self.optimizer)
        state: dict[str, Any] = {
            "progress": asdict(self.progress),
            "metrics_bytes": self.metrics.save(),
            "config": self.config.fingerprint(),
        }
        weights = dict(self.model.state_dict())
        save(self.checkpoints, self.progress.step, Checkpoint(weights, tensors, scalars, state))
        self.saved_at = time.monotonic()

    def _result(self) -> DecisionResult:
        found = self.last or self._evaluate(self.config.epochs)  # a resumed run may have none
        return DecisionResult(
            run=self.path,
            target=found.target,
            returns=found.returns,
            returned=found.mean,
            deviation=found.deviation,
            score=found.score,
            data_mean=float(np.mean(self.data.returns)),
            best_decile=self.data.best_decile(),
            decisions_per_second=found.decisions / max(found.seconds, 1e-9),
            seconds=time.monotonic() - self.began,
            parameters=self.parameters,
            peak_memory_mb=peak_memory_mb(),
        )


def build_model(
    config: DecisionConfig, *, state_dim: int, action_dim: int, horizon: int
) -> DecisionTransformer:
    """The model of a run's settings, with random weights; its scales are yet to be set."""
    return DecisionTransformer(
        state_dim=state_dim,
        action_dim=action_dim,
        context=config.context,
        horizon=horizon,
        attention=config.attention,
        attention_options=config.attention_options(),
        conditioned=config.conditioned,
        width=config.width,
        heads=config.heads,
        feedforward=config.feedforward,
        dropout=config.dropout,
        activation="gelu" if config.activation == "gelu" else "relu",
    )


def _device(accelerator: str) -> torch.device:
    if accelerator != "auto":
        return torch.device(accelerator)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
