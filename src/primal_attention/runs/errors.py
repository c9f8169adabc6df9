"""What can go wrong with a run."""

from __future__ import annotations


class RunError(ValueError):
    """A run cannot start, resume or be read; the message is one sentence for a person."""


class NotFiniteError(RunError):
    """The training itself failed: a loss or a gradient is NaN or infinite."""
