"""Layers that see the past alone and can go on from a state: what models of streams share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from ..attention import attention_info
from ..attention.base import Streaming
from ..attention.rotation import Rotation
from .encoder import Encoder, EncoderLayer


class CausalLayer(EncoderLayer):
    """A layer of the encoder that can continue from a state."""

    def prefill(
        self, rows: Tensor, padding: Tensor | None, state: Any, rotation: Rotation | None = None
    ) -> tuple[Tensor, Any]:
        """The layer over rows (B, N, d) that come after those of the state, and the next state."""
        after = state
        turned = {} if rotation is None else {"rotation": rotation}

        def attend(x: Tensor) -> Tensor:
            nonlocal after
            out, after = cast(Streaming, self.attention).prefill(x, padding, state, **turned)
            return out

        rows = self._residual(rows, attend, self.norm_attention)
        return self._residual(rows, self.feedforward, self.norm_feedforward), after


def streams(encoder: Encoder) -> bool:
    """Whether all layers can continue from a state."""
    return all(isinstance(layer.attention, Streaming) for layer in encoder.layers)


def first_states(encoder: Encoder, batch: int) -> tuple[Any, ...]:
    """The states of all layers before the first row; of encoders that stream only."""
    if not streams(encoder):
        raise ValueError(
            "the model cannot go on from a memory; expected attentions that stream, with primal, "
            "softmax or linear in every layer"
        )
    return tuple(cast(Streaming, layer.attention).init_state(batch) for layer in encoder.layers)


def go_on(
    encoder: Encoder, rows: Tensor, states: Sequence[Any], rotation: Rotation | None = None
) -> tuple[Tensor, tuple[Any, ...]]:
    """The encoder over rows (B, N, d) that come after the states, and the next states."""
    after = []
    for layer, state in zip(encoder.layers, states, strict=True):
        rows, state = cast(CausalLayer, layer).prefill(rows, None, state, rotation)
        after.append(state)
    out: Tensor = encoder.last_norm(rows)
    return out, tuple(after)


def shortened(hidden: Tensor, *columns: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Columns (1, N) of a sequence without what hidden (m, N) marks, as m shorter ones: the place
    (m,) of the last position of each, and the columns (m, N'), behind the end of a sequence those
    of its last position."""
    left = (~hidden).sum(-1)
    if int(left.min()) < 1:
        raise ValueError("all positions are hidden; expected at least one that is not")
    order = hidden.to(torch.int8).argsort(dim=-1, stable=True)  # what is kept comes first
    last = left - 1
    places = torch.arange(int(left.max()), device=hidden.device).minimum(last.unsqueeze(-1))
    chosen = order.gather(-1, places)
    return last, [column.expand(len(hidden), -1).gather(-1, chosen) for column in columns]


def check_rotation(encoder: Encoder, pairs: int) -> None:
    """Raise unless all attentions can be turned by times or positions, in at least one pair of
    coordinates of every head."""
    for layer in encoder.layers:
        attention = layer.attention
        if not getattr(attention, "has_rotation", False):
            raise ValueError(
                f"{type(attention).__name__} knows no times or positions; expected 'primal' with "
                "tied weights, 'linear' or 'softmax'"
            )
        if (weights := getattr(attention, "weights", "tied")) != "tied":
            raise ValueError(
                f"a primal layer that is turned by times has weights={weights!r}; expected "
                'weights="tied"'
            )
    if pairs < 1:
        raise ValueError("a head has one coordinate; expected two at least, which times can turn")


def check_causal(names: Sequence[str], given: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise unless all attentions have a causal form, and no option is about it."""
    for name in [] if isinstance(names, str) else names:
        if not attention_info(name).causal:
            raise ValueError(
                f"attention {name!r} has no causal form; expected one that has, such as 'softmax', "
                "'primal' or 'linear'"
            )
    for name, options in given.items():
        if "causal" in options:
            raise ValueError(
                f"attention_options[{name!r}] has causal; expected it to be left to the model"
            )
