"""Averages of the weights over the steps (exponential moving average)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


class Average:
    """weights <- decay * weights + (1 - decay) * those of the model, after every step."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights = {name: t.detach().clone() for name, t in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point():
                self.weights[name].lerp_(tensor, 1 - self.decay)
            else:
                self.weights[name].copy_(tensor)


@contextmanager
def in_use(average: Average | None, model: nn.Module) -> Iterator[None]:
    """While in it, the model has the averaged weights, if there are any."""
    if average is None:
        yield
        return
    own = {name: t.detach().clone() for name, t in model.state_dict().items()}
    model.load_state_dict(average.weights)
    try:
        yield
    finally:
        model.load_state_dict(own)
