"""The classifier that the settings of a run describe."""

from __future__ import annotations

from typing import Any

from .classifier import SequenceClassifier
from .series_net import SeriesNet

NET = {"norm": "pre", "positions": "learned", "head": "mean", "activation": "gelu"}


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
    if settings.model == "net":
        _check_net(settings, shape)
        return SeriesNet(**common)
    return SequenceClassifier(
        norm=settings.norm,
        activation=settings.activation,
        positions=settings.positions,
        head=settings.head,
        **common,
    )


def _check_net(settings: Any, shape: dict[str, Any]) -> None:
    """What the net cannot be is refused."""
    if "channels" not in shape:
        raise ValueError("model is 'net', which is for time series; expected 'transformer'")
    for name, expected in NET.items():
        if (value := getattr(settings, name)) != expected:
            raise ValueError(f"{name} is {value!r}; expected {expected!r} in the net")
