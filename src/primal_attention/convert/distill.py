"""A short distillation of converted layers against the attentions that they replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import torch
from torch import nn

from ..adapters.converted import Call, Converted, evaluation
from ..attention.primal import PrimalAttention
from .examples import call_model
from .inputs import expect_inputs, listed
from .lessons import Lesson, lessons, taught_by_originals
from .sites import expect_converted, paths


class Distilled(NamedTuple):
    """A layer's squared error against the original, relative to the variance of its output: 1 is
    as good as the mean, 0 is equal."""

    name: str
    before: float
    after: float


def distill_(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    only: Iterable[Converted] | None = None,
    steps: int = 100,
    lr: float = 3e-3,
    tell: Callable[[int, int, str], None] | None = None,
) -> list[Distilled]:
    """Train the converted layers alone to give the original attentions' outputs, in place.

    batches: a few inputs of the model: tensors, tuples of arguments or dicts of keywords. The model
    runs over them with its originals, and what each of them was asked and answered is kept; then
    each layer learns from that, by itself, one batch a step: a step costs that layer, not the
    model. Adam, with a learning rate that falls linearly to zero. Padding does not count. A layer
    that ends worse than it began, as with an lr that is too large for it, has its start again.
    only: some of the converted layers; None is all of them.
    tell(layer, layers, text) hears of every layer that is done.
    """
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
        raise ValueError(f"steps is {steps!r}; expected an integer of at least 0")
    inputs = listed(batches)
    if not inputs:
        raise ValueError("batches is empty; expected at least one input of the model")
    layers = expect_converted(model, originals=True)
    expect_inputs(model, inputs)
    learning = layers if only is None else list(only)
    rows = []
    with without_dropout(model, layers):
        for layer, heard in lessons(model, layers, inputs, learning):
            before = _error(layer, heard)
            after = _teach(layer, heard, steps, lr, before) if steps else before
            rows.append(Distilled(paths(model, layer)[0], before, after))
            if tell is not None:
                tell(len(rows), len(learning), f"{rows[-1].name}: {before:.3g} -> {after:.3g}")
    return rows


def _teach(
    layer: Converted, heard: list[list[Lesson]], steps: int, lr: float, before: float
) -> float:
    """The error after so many steps, or the one before, if it was better."""
    start = {name: tensor.detach().clone() for name, tensor in layer.state_dict().items()}
    parameters = [p for p in layer.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(parameters, lr=lr)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    for step in range(steps):
        losses = [lesson.error(layer) for lesson in heard[step % len(heard)]]
        optimizer.zero_grad()
        torch.stack(losses).sum().backward()
        optimizer.step()
        schedule.step()
    optimizer.zero_grad()
    after = _error(layer, heard)
    if after < before:
        return after
    layer.load_state_dict(start)
    return before


@torch.no_grad()
def _error(layer: Converted, heard: list[list[Lesson]]) -> float:
    """The mean over all batches."""
    errors = [lesson.error(layer) for each in heard for lesson in each]
    return float(torch.stack(errors).mean())


def init_ksvd_(model: nn.Module, batch: Any) -> None:
    """Start W_e, W_r and Lambda of the converted layers at the exact KSVD of a batch.

    The batch goes through the model with the original attentions; see PrimalAttention.init_ksvd_,
    which asks for rank <= head_dim. Data-dependent weights take the first sequence. Tied weights
    have nothing to set.
    """
    layers = expect_converted(model, originals=True)

    def start(layer: Converted, call: Call, args: Any, kwargs: Any, taught: Any) -> None:
        primal = layer.primal
        if not isinstance(primal, PrimalAttention) or primal.weights == "tied":
            return
        x, context, ignore = call.x, call.context, call.ignore
        if primal.weights == "data" and x.dim() == 3:
            first = slice(1) if primal.batch_first else (slice(None), slice(1))
            x, context = x[first], None if context is None else context[first]
            ignore = None if ignore is None else ignore[:1]
        try:
            primal.init_ksvd_(x, ignore, key=context)
        except ValueError as error:
            raise ValueError(f"{paths(model, layer)[0]}: {error}") from error

    with without_dropout(model, layers), torch.no_grad(), taught_by_originals(layers, start):
        call_model(model, batch)


@contextmanager
def without_dropout(model: nn.Module, layers: list[Converted]) -> Iterator[None]:
    """The model and the originals without dropout."""
    with evaluation(model):
        for layer in layers:
            cast(nn.Module, layer.conversion.original).eval()
        yield
