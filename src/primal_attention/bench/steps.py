"""What is timed: one call of a step, for any candidate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..models import SequenceClassifier
from ..tasks import get_task
from ..tasks.lra.task import ArenaTask
from ..theory.ledger import Ledger
from ..theory.loss import ksvd_loss
from ..train.optim import make_optimizer
from .blocks import Floor
from .candidates import SOFTMAX, Candidate, parse_candidate
from .settings import ARENA, LAYERS, Settings

Step = Callable[[], Tensor]  # returns the output, (B, N, d) of a block, (B, classes) of an encoder

ETA = 0.1
CHANNELS, CLASSES = 16, 10  # of the encoder
SMALL = 64  # a length for the libraries to fill their own buffers with


def arena_task(name: str) -> ArenaTask:
    """The task of the Long-Range Arena whose model is measured."""
    return cast(ArenaTask, get_task(name))


def make_inputs(settings: Settings, length: int) -> Tensor:
    """Random sequences: (B, N, width) for a block, (B, N, channels) for an encoder, tokens (B, N)
    or pairs (B, 2, N) for a task of the arena."""
    torch.manual_seed(1)
    if settings.what in ARENA:
        task = arena_task(settings.what)
        shape = (settings.batch_size, 2, length) if task.pairs else (settings.batch_size, length)
        return torch.randint(task.vocabulary, shape, device=settings.device)
    channels = settings.width if settings.what == "block" else CHANNELS
    dtype: torch.dtype = getattr(torch, settings.dtype)
    return torch.randn(settings.batch_size, length, channels, device=settings.device, dtype=dtype)


def make_step(settings: Settings, candidate: Candidate, inputs: Tensor) -> Step:
    """A step over the inputs with weights of its own; it returns when it is computed."""
    step = _make_step(settings, candidate, inputs)
    if inputs.device.type == "cpu":
        return step

    def finished() -> Tensor:
        out = step()
        torch.accelerator.synchronize(inputs.device)
        return out

    return finished


def _make_step(settings: Settings, candidate: Candidate, inputs: Tensor) -> Step:
    torch.manual_seed(0)
    length = inputs.shape[-1 if settings.what in ARENA else 1]
    if settings.what == "block":
        block = candidate.build(settings, length)
        call: Step = lambda: block(inputs)[0]  # noqa: E731
        return _forward(block, call) if settings.mode == "forward" else _block(block, inputs)
    encoder = _encoder(settings, candidate, length)
    if settings.mode == "forward":
        return _forward(encoder, lambda: encoder(inputs))
    return _encoder_step(encoder, inputs)


def memory_step(fields: Mapping[str, Any], candidate: str, length: int) -> Step:
    """`make_step` from plain values, for a process of its own, after a small step that makes the
    libraries load and fill what they keep."""
    settings, parsed = Settings.from_dict(fields), parse_candidate(candidate)
    torch.set_num_threads(settings.threads)
    make_step(settings, parsed, make_inputs(settings, min(length, SMALL)))()
    return make_step(settings, parsed, make_inputs(settings, length))


def _forward(model: nn.Module, call: Step) -> Step:
    model.eval()

    def step() -> Tensor:
        with torch.no_grad():
            return call()

    return step


def _block(block: nn.Module, inputs: Tensor) -> Step:
    """Forward and backward to all parameters and the input."""
    x = inputs.detach().requires_grad_()  # shares its memory
    leaves = [x, *(p for p in block.parameters() if p.requires_grad)]
    extra = _Extra(block, inputs)

    def step() -> Tensor:
        out: Tensor = block(x)[0]
        outputs, gradients = extra.outputs_and_gradients()
        # any random numbers do for a gradient, and the inputs are such
        torch.autograd.grad(
            [out, *outputs], leaves, [inputs, *gradients], allow_unused=True
        )  # an attention without queries does not use all of its parameters
        return out.detach()

    return step


def _encoder_step(encoder: nn.Module, inputs: Tensor) -> Step:
    """Forward, cross-entropy, backward, and the optimiser."""
    targets = torch.arange(inputs.shape[0], device=inputs.device) % CLASSES
    optimizer = make_optimizer("adamw", encoder.parameters(), lr=1e-4)
    extra = _Extra(encoder, inputs)

    def step() -> Tensor:
        optimizer.zero_grad()
        logits: Tensor = encoder(inputs)
        outputs, gradients = extra.outputs_and_gradients()
        loss = F.cross_entropy(logits, targets)
        torch.autograd.backward([loss, *outputs], [None, *gradients])
        optimizer.step()
        return logits.detach()

    return step


class _Extra:
    """What a backward pass begins with beside the output: the KSVD loss, and floors' q and k."""

    def __init__(self, model: nn.Module, inputs: Tensor) -> None:
        self._model = model
        self._ksvd = any(isinstance(getattr(m, "ledger", None), Ledger) for m in model.modules())
        self._floors = [m for m in model.modules() if isinstance(m, Floor)]
        # made here, so that no step is charged with them
        tokens = inputs if inputs.is_floating_point() else inputs.view(-1, inputs.shape[-1])
        rows = tokens.shape[:2]
        self._gradients = [
            floor.qk_proj.weight.new_empty(*rows, floor.qk_proj.out_features).normal_()
            for floor in self._floors
        ]

    def outputs_and_gradients(self) -> tuple[list[Tensor], list[Tensor | None]]:
        """Call it after a forward pass in training mode."""
        outputs = [floor.take_qk() for floor in self._floors]
        gradients: list[Tensor | None] = [*self._gradients]
        if self._ksvd:
            return [*outputs, ETA * ksvd_loss(self._model)], [*gradients, None]
        return outputs, gradients


def _encoder(settings: Settings, candidate: Candidate, length: int) -> SequenceClassifier:
    kind: dict[str, Any] = {"channels": CHANNELS, "positions": "sinusoidal"}
    if settings.what in ARENA:
        task = arena_task(settings.what)
        paper = task.recipe("paper", (SOFTMAX,) * LAYERS)
        kind = {key: paper[key] for key in ("positions", "norm", "activation", "head")}
        kind |= {"vocabulary": task.vocabulary, "pairs": task.pairs}
    model = SequenceClassifier(
        classes=CLASSES,
        max_length=length,
        attention=(SOFTMAX,) * LAYERS,
        width=settings.width,
        heads=settings.heads,
        feedforward=2 * settings.width,
        dropout=0.0,
        device=settings.device,
        dtype=getattr(torch, settings.dtype),
        **kind,
    )
    for layer, own in zip(model.encoder.layers, candidate.layers(LAYERS), strict=True):
        layer.attention = own.build(settings, length)
    return model
