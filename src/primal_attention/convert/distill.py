"""A short distillation of converted layers against the attentions that they replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from ..adapters.converted import Call, Converted, evaluation
from ..attention.primal import PrimalAttention
from .examples import call_model
from .sites import expect_converted, paths


class Distilled(NamedTuple):
    """A layer's squared error against the original, relative to the variance of its output: 1 is
    as good as the mean, 0 is equal."""

    name: str
    before: float
    after: float


def distill_(
    model: nn.Module, batches: Iterable[Any], *, steps: int = 100, lr: float = 3e-3
) -> list[Distilled]:
    """Train the converted layers alone to give the original attentions' outputs, in place.

    batches: a few inputs of the model: tensors, tuples of arguments or dicts of keywords. In every
    step each original and its replacement get the same input, and the rest of the model continues
    from the original's output, so that all layers learn at once from what they saw before the
    conversion. Adam, with a learning rate that falls linearly to zero. Padding does not count.
    """
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
        raise ValueError(f"steps is {steps!r}; expected an integer of at least 0")
    inputs = list(batches)
    if not inputs:
        raise ValueError("batches is empty; expected at least one input of the model")
    layers = expect_converted(model, originals=True)
    parameters = [p for layer in layers for p in layer.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(parameters, lr=lr)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / max(steps, 1))
    with without_dropout(model, layers):
        before = _errors(model, layers, inputs)
        for step in range(steps):
            losses = _run(model, layers, inputs[step % len(inputs)])
            optimizer.zero_grad()
            torch.stack([loss for each in losses.values() for loss in each]).sum().backward()
            optimizer.step()
            schedule.step()
        optimizer.zero_grad()
        after = _errors(model, layers, inputs)
    names = [paths(model, layer)[0] for layer in layers]
    return [Distilled(*row) for row in zip(names, before, after, strict=True)]


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


def _errors(model: nn.Module, layers: list[Converted], inputs: list[Any]) -> list[float]:
    """The mean error of every layer over all inputs."""
    sums = dict.fromkeys(layers, 0.0)
    for batch in inputs:
        for layer, found in _run(model, layers, batch).items():
            sums[layer] += float(torch.stack(found).mean().detach()) / len(inputs)
    return list(sums.values())


def _run(model: nn.Module, layers: list[Converted], batch: Any) -> dict[Converted, list[Tensor]]:
    """One forward of the model with the originals; the error of each layer, with its graph."""
    losses: dict[Converted, list[Tensor]] = {layer: [] for layer in layers}

    def compare(layer: Converted, call: Call, args: Any, kwargs: Any, taught: Any) -> None:
        with torch.enable_grad():
            student = type(layer).forward(layer, *args, **kwargs)
            losses[layer].append(_error(layer, call, _tensor(student), _tensor(taught)))

    with torch.no_grad(), taught_by_originals(layers, compare):
        call_model(model, batch)
    silent = [paths(model, layer)[0] for layer, found in losses.items() if not found]
    if silent:
        raise ValueError(f"{silent[0]} was not reached by this batch; expected one that uses it")
    return losses


def _error(layer: Converted, call: Call, student: Tensor, teacher: Tensor) -> Tensor:
    if call.ignore is not None and call.context is None:
        keep = ~call.ignore
        keep = keep if getattr(layer.primal, "batch_first", True) or keep.dim() == 1 else keep.t()
        student, teacher = student[keep], teacher[keep]  # (rows, d)
    student, teacher = student.flatten(0, -2), teacher.flatten(0, -2)
    variance = (teacher - teacher.mean(0)).square().mean()
    return (student - teacher).square().mean() / variance.clamp(min=torch.finfo(teacher.dtype).tiny)


@contextmanager
def taught_by_originals(layers: list[Converted], tell: Callable[..., None]) -> Iterator[None]:
    """For the time of a `with`, the layers give their originals' outputs; `tell` gets each call,
    translated and as it came, with that output."""

    def forward_of(layer: Converted) -> Callable[..., Any]:
        original = layer.conversion.original

        def forward(*args: Any, **kwargs: Any) -> Any:
            # there is no place in a cache for both of them
            kwargs = {name: v for name, v in kwargs.items() if name != "past_key_values"}
            taught = original(*args, **kwargs)  # type: ignore[misc]
            tell(layer, layer.translate(*args, **kwargs), args, kwargs, taught)
            return taught

        return forward

    for layer in layers:
        layer.__dict__["forward"] = forward_of(layer)
    try:
        yield
    finally:
        for layer in layers:
            del layer.__dict__["forward"]


@contextmanager
def without_dropout(model: nn.Module, layers: list[Converted]) -> Iterator[None]:
    """The model and the originals without dropout."""
    with evaluation(model):
        for layer in layers:
            cast(nn.Module, layer.conversion.original).eval()
        yield


def _tensor(output: Any) -> Tensor:
    return output[0] if isinstance(output, tuple) else output  # type: ignore[no-any-return]
