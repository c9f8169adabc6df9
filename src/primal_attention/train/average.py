"""Averages of the weights over the steps (exponential moving average)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ..theory.precision import widen


class Average:
    """weights <- decay * weights + (1 - decay) * those of the model, after every step.

    Of the parameters, in float32 at least: in half precision an average would stand still. Buffers
    are those of the model. (torch's AveragedModel keeps the model's own type, and a second model.)
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        bare = getattr(model, "module", model)  # without the wrapper of Fabric
        self.averaged = {name for name, _ in bare.named_parameters()}
        self.weights = {
            name: (widen(t) if name in self.averaged else t).detach().clone()
            for name, t in model.state_dict().items()
        }

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        for name, tensor in model.state_dict().items():
            own = self.weights[name]
            if name in self.averaged:
                own.lerp_(tensor.to(own.dtype), 1 - self.decay)
            else:
                own.copy_(tensor)

    def for_model(self, model: nn.Module) -> dict[str, Tensor]:
        """The weights in the model's types."""
        return {name: self.weights[name].to(t.dtype) for name, t in model.state_dict().items()}


@contextmanager
def in_use(average: Average | None, model: nn.Module) -> Iterator[None]:
    """While in it, the model has the averaged weights, if there are any."""
    if average is None:
        yield
        return
    own = {name: t.detach().clone() for name, t in model.state_dict().items()}
    model.load_state_dict(average.for_model(model))
    try:
        yield
    finally:
        model.load_state_dict(own)
