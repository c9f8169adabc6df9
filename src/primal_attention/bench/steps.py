"""What is timed: one call of a step, for any candidate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..ksvd.ledger import Ledger
from ..ksvd.loss import ksvd_loss
from ..models import SequenceClassifier
from ..train.optim import make_optimizer
from .blocks import Floor
from .candidates import SOFTMAX, Candidate, parse_candidate
from .settings import Settings

Step = Callable[[], Tensor]  # returns the output, (B, N, d) of a block, (B, classes) of an encoder

ETA = 0.1
LAYERS, CHANNELS, CLASSES = 2, 16, 10  # of the encoder
SMALL = 64  # a length for the libraries to fill their own buffers with


def make_inputs(settings: Settings, length: int) -> Tensor:
    """Random sequences: (B, N, width) for a block, (B, N, channels) for an encoder."""
    torch.manual_seed(1)
    channels = settings.width if settings.what == "block" else CHANNELS
    dtype: torch.dtype = getattr(torch, settings.dtype)
    return torch.randn(settings.batch, length, channels, device=settings.device, dtype=dtype)


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
    length = inputs.shape[1]
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
        self._gradients = [
            inputs.new_empty(*inputs.shape[:2], floor.qk_proj.out_features).normal_()
            for floor in self._floors
        ]

    def outputs_and_gradients(self) -> tuple[list[Tensor], list[Tensor | None]]:
        """Call it after a forward pass in training mode."""
        if self._ksvd:
            return [ETA * ksvd_loss(self._model)], [None]
        return [floor.take_qk() for floor in self._floors], list(self._gradients)


def _encoder(settings: Settings, candidate: Candidate, length: int) -> SequenceClassifier:
    name = SOFTMAX if candidate.is_extra else candidate.name
    options = {} if candidate.is_extra else candidate.attention_options(settings, length)
    model = SequenceClassifier(
        classes=CLASSES,
        channels=CHANNELS,
        max_length=length,
        attention=(name,) * LAYERS,
        attention_options={name: options},
        width=settings.width,
        heads=settings.heads,
        feedforward=2 * settings.width,
        dropout=0.0,
        positions="sinusoidal",
        device=settings.device,
        dtype=getattr(torch, settings.dtype),
    )
    if candidate.is_extra:
        for layer in model.encoder.layers:
            layer.attention = candidate.build(settings, length)
    return model
