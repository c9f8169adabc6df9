"""The module in the place of an attention: primal attention behind its calling convention."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..attention.base import Streaming
from ..attention.primal import PrimalAttention
from ..attention.primal.rotary import RotaryPrimalAttention


class Call(NamedTuple):
    """One call, translated: x (B, N, d) asks, context (B, M, d) is asked (None: x itself)."""

    x: Tensor
    ignore: Tensor | None = None  # (B, M), True = ignore
    context: Tensor | None = None
    rotation: tuple[Tensor, Tensor] | None = None  # cosines and sines of the positions
    state: Any = None  # what came before, in causal layers


@dataclass(eq=False)
class Conversion:
    """What a converted module is and where it comes from. Not part of the model's state."""

    adapter: str
    settings: dict[str, Any]
    cross: bool
    original: nn.Module | None = field(repr=False)  # None: loaded without its base


class Converted(nn.Module):
    """Base of the replacements.

    A subclass defines `translate`, which brings the arguments of a call to a `Call`, and `forward`,
    which calls `self.attend(self.translate(...))` and returns what the original returned.
    """

    def __init__(self, primal: nn.Module) -> None:
        super().__init__()
        self.primal = primal

    @property
    def conversion(self) -> Conversion:
        return self.__dict__["_conversion"]  # type: ignore[no-any-return]

    @conversion.setter
    def conversion(self, conversion: Conversion) -> None:
        # past nn.Module, which would make the original a part of the model
        self.__dict__["_conversion"] = conversion

    def translate(self, *args: Any, **kwargs: Any) -> Call:
        """The arguments of `forward` as a Call."""
        raise NotImplementedError(f"{type(self).__name__} does not define translate")

    def attend(self, call: Call) -> tuple[Tensor, Any]:
        """The output (B, N, d), and the state after it where the layer is causal."""
        primal = self.primal
        if isinstance(primal, RotaryPrimalAttention):
            return primal.forward(call.x, call.ignore, call.rotation, call.state)
        if not isinstance(primal, PrimalAttention):
            return self._attend_registered(primal, call)
        sequences, _ = primal._arrange(call.x, call.context, None, call.ignore)
        out, after = primal._attend(sequences, call.state, record=primal.training)
        return sequences.restore(out), after

    def _attend_registered(self, layer: Any, call: Call) -> tuple[Tensor, Any]:
        """By another attention of the registry."""
        if isinstance(layer, Streaming) and layer.causal:
            return layer.prefill(call.x, call.ignore, call.state)
        if call.state is not None:
            raise ValueError(f"{type(layer).__name__} cannot continue from a cache; expected none")
        out, _ = layer(call.x, call.context, key_padding_mask=call.ignore)
        return out, None


def converted_layers(model: nn.Module) -> list[Converted]:
    """The converted layers of a model, in the model's order."""
    return [m for m in model.modules() if isinstance(m, Converted) and "_conversion" in m.__dict__]


def forget_originals(model: nn.Module) -> None:
    """Let go of what the converted layers replaced."""
    for layer in converted_layers(model):
        layer.conversion.original = None


@contextmanager
def evaluation(model: nn.Module) -> Iterator[None]:
    """For the time of a `with`: no dropout, and none of torch's fast paths, which go around hooks
    and make nested tensors."""
    modes = {module: module.training for module in model.modules()}
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        model.eval()
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        for module, mode in modes.items():
            module.training = mode
