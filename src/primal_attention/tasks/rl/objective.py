"""The objective of decision transformers: the recorded actions, and returns in the environment."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from ...models.decision import DecisionTransformer
from ..base import Task
from ..buckets import shuffled_batches
from ..objective import Ended, Found, Objective, RunResult
from .agents import make_agent
from .environments import Environment, check_fits
from .judge import Evaluation, evaluate
from .result import DecisionResult
from .sets import RLTask
from .settings import DecisionConfig
from .trajectories import ContextBatch, Contexts, Trajectories

FINAL = 10_000  # stands for the last epoch in the seed of its episodes, however many there are
LOOKED_AT = 8  # pieces of the data, after an epoch


class Decision(Objective[DecisionConfig, ContextBatch]):
    """Learns which action came next in pieces of recorded episodes. It is judged by the returns of
    the last epoch: to choose one by its returns would be to choose by luck."""

    result_class: ClassVar[type[RunResult]] = DecisionResult
    pictures: ClassVar[tuple[str, ...]] = ("episode",)
    stops_early: ClassVar[bool] = False  # the returns of a few episodes are too uncertain
    mean_over_cases: ClassVar[bool] = False
    tells_seconds: ClassVar[bool] = False

    examples: Contexts

    def __init__(
        self, config: DecisionConfig, environment: Environment, data: Trajectories
    ) -> None:
        self.config, self.environment, self.data = config, environment, data
        self.examples = Contexts(data, config.context)
        self.fingerprints = {"train": data.fingerprint()}

    @classmethod
    def load(cls, task: Task, config: DecisionConfig) -> Decision:
        """The episodes. The environment is made once: a run needs it after its first epoch only,
        and hours of training would be lost if it could not be made or did not fit."""
        if not isinstance(task, RLTask):
            raise TypeError(f"task is {task.name!r}; expected recorded episodes")
        data = task.episodes(config.data_dir)
        check_fits(task.environment, data)
        return cls(config, task.environment, data)

    def model(self) -> DecisionTransformer:
        data = self.data
        model = build_model(
            self.config,
            state_dim=data.observations.shape[1],
            action_dim=data.actions.shape[1],
            horizon=max(self.environment.horizon, int(data.lengths.max())),
        )
        model.set_scales_(
            state_mean=data.state_mean,
            state_std=data.state_std,
            action_scale=data.action_scale,
            return_scale=self.environment.return_scale,
        )
        return model

    def batches(self, number: int) -> list[list[int]]:
        size, seed = self.config.batch_size, self.config.seed
        return shuffled_batches(len(self.examples), size, seed, number)

    def inputs(self, batch: ContextBatch) -> Sequence[Tensor]:
        return batch

    def loss(self, model: nn.Module, batch: ContextBatch) -> Tensor:
        """The mean squared error of the actions, scaled to one, over the steps that are real."""
        predicted: Tensor = model(*batch)
        wrong = (predicted - batch.actions) / cast(Tensor, model.action_scale)
        return wrong[~batch.padding].square().mean()

    def terms(self, indices: Sequence[int]) -> int:
        return self.examples.steps_of(indices)

    def random_key(self, step: int, rank: int) -> tuple[int, ...]:
        return (step, rank) if rank else (step,)

    def clip_(self, gradients: list[Tensor], norm: float) -> None:
        """As `torch.nn.utils.clip_grads_with_norm_` does it, which divides by norm + 1e-6."""
        if self.config.clip is not None:
            total = torch.tensor(norm, dtype=gradients[0].dtype, device=gradients[0].device)
            factor = torch.clamp(self.config.clip / (total + 1e-6), max=1.0)
            torch._foreach_mul_(gradients, factor)

    def evaluate(self, fabric: Fabric, model: nn.Module, epoch: int) -> Found:
        found = self._play(fabric, model, FINAL if epoch == self.config.epochs else epoch)
        return Found(
            {"returned": found.mean, "deviation": found.deviation, "score": found.score},
            f"return {found.mean:.1f} ± {found.deviation:.1f}  score {found.score:.1f}",
            found,
        )

    def _play(self, fabric: Fabric, model: nn.Module, number: int) -> Evaluation:
        """Episodes of process 0: the others could play them in other groups only, which rounds in
        other ways."""
        found = None
        if fabric.is_global_zero:
            bare = cast(DecisionTransformer, getattr(model, "module", model))
            found = evaluate(
                make_agent(bare, stream=self.config.stream),
                self.environment,
                episodes=self.config.episodes,
                target=self.config.target,
                seed=self.config.seed * 100 + number,
            )
        return cast(Evaluation, fabric.broadcast(found))

    def looked_at(self) -> list[ContextBatch]:
        """Pieces that are spread over the data."""
        pieces = range(0, len(self.examples), math.ceil(len(self.examples) / LOOKED_AT))
        return [self.examples.__getitems__(list(pieces))]

    def result(self, fabric: Fabric, model: nn.Module, ended: Ended) -> dict[str, Any]:
        found = ended.found
        played = self._play(fabric, model, FINAL) if found is None else found.whole
        return {
            "target": played.target,
            "returns": played.returns,
            "returned": played.mean,
            "deviation": played.deviation,
            "score": played.score,
            "data_mean": float(np.mean(self.data.returns)),
            "best_decile": self.data.best_decile(),
            "decisions_per_second": played.decisions / max(played.seconds, 1e-9),
        }

    def opening(self, parameters: int, steps: int) -> str:
        config = self.config
        kind = "" if config.conditioned else ", behaviour cloning"
        return (
            f"{config.task}, {' + '.join(config.attention)}{kind}, seed {config.seed}: "
            f"{parameters:,} parameters, {len(self.data)} episodes, {self.data.steps:,} steps "
            f"recorded, {steps} steps to train"
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


def trained_model(config: DecisionConfig, weights: Mapping[str, Tensor]) -> DecisionTransformer:
    """The model of a run with its weights, ready to act; the data are not needed."""
    model = build_model(
        config,
        state_dim=weights["embed_state.weight"].shape[1],
        action_dim=weights["embed_action.weight"].shape[1],
        horizon=weights["embed_time.weight"].shape[0],
    )
    model.load_state_dict(weights)
    return model.eval()
