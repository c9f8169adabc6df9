"""The classifier that the settings of a run describe."""

from __future__ import annotations

from typing import Any

from ..attention import variational_
from .classifier import SequenceClassifier
from .series_net import SeriesNet
from .starts import start_as

# what the net is, where a Transformer has a choice
NET = {
    "norm": "pre", "positions": "learned", "head": "mean", "activation": "gelu",
    "padding": "ignored", "pooled": "valid",
}  # fmt: skip


def build_model(settings: Any, **shape: Any) -> SequenceClassifier | SeriesNet:
    """A classifier with random weights. `settings` has the fields of a run's configuration; the
    shape is that of the data: classes, max_length, and channels or vocabulary (and pairs)."""
    common: dict[str, Any] = {
        "attention": settings.attention,
        "attention_options": settings.attention_options(),
        "width": settings.width,
        "heads": settings.heads,
        "feedforward": settings.feedforward,
        "dropout": settings.dropout,
        **shape,
    }
    model: SequenceClassifier | SeriesNet
    if settings.model == "net":
        _check_net(settings, shape)
        model = SeriesNet(**common)
    else:
        model = SequenceClassifier(
            norm=settings.norm,
            activation=settings.activation,
            positions=settings.positions,
            head=settings.head,
            padding=settings.padding,
            pooled=settings.pooled,
            **common,
        )
    start_as(
        model,
        projections=settings.projection_start,
        directions=settings.direction_start,
        tokens=settings.token_start,
    )
    return variational_(model) if settings.uncertainty == "readout" else model


def _check_net(settings: Any, shape: dict[str, Any]) -> None:
    """What the net cannot be is refused."""
    if "channels" not in shape:
        raise ValueError("model is 'net', which is for time series; expected 'transformer'")
    for name, expected in NET.items():
        if (value := getattr(settings, name)) != expected:
            raise ValueError(f"{name} is {value!r}; expected {expected!r} in the net")
