"""The classifier that the settings of a run describe."""

from __future__ import annotations

from typing import Any

from .classifier import SequenceClassifier
from .starts import start_as


def build_model(settings: Any, **shape: Any) -> SequenceClassifier:
    """A classifier with random weights. `settings` has the fields of a run's configuration; the
    shape is that of the data: classes, max_length, and channels or vocabulary (and pairs)."""
    model = SequenceClassifier(
        attention=settings.attention,
        attention_options=settings.attention_options(),
        width=settings.width,
        heads=settings.heads,
        feedforward=settings.feedforward,
        dropout=settings.dropout,
        norm=settings.norm,
        activation=settings.activation,
        positions=settings.positions,
        head=settings.head,
        padding=settings.padding,
        pooled=settings.pooled,
        **shape,
    )
    start_as(
        model,
        projections=settings.projection_start,
        directions=settings.direction_start,
        tokens=settings.token_start,
    )
    return model
