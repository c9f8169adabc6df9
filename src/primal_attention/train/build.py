"""The model that a configuration describes."""

from __future__ import annotations

from ..models import SequenceClassifier
from .config import RunConfig


def build_model(
    config: RunConfig, *, classes: int, channels: int, max_length: int
) -> SequenceClassifier:
    """A classifier of series (length <= max_length, channels), with random weights."""
    return SequenceClassifier(
        classes=classes,
        channels=channels,
        max_length=max_length,
        attention=config.attention,
        attention_options=config.attention_options(),
        width=config.width,
        heads=config.heads,
        feedforward=config.feedforward,
        dropout=config.dropout,
        norm=config.norm,  # type: ignore[arg-type]
        activation=config.activation,  # type: ignore[arg-type]
        positions=config.positions,  # type: ignore[arg-type]
        head=config.head,  # type: ignore[arg-type]
    )
