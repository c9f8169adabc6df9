"""What an extra of the package brings: asked for in one way, and missed in one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from .errors import RunError

_CALLED = {"PIL": "Pillow", "ray": "Ray", "sklearn": "scikit-learn"}  # by those who install them


class MissingExtra(ModuleNotFoundError, RunError):
    """A module is not installed; the message names it and the extra that brings it."""


@contextmanager
def needs_extra(extra: str, what: str) -> Iterator[None]:
    """Around imports: `with needs_extra("plot", "figures need"): import matplotlib`."""
    try:
        yield
    except ModuleNotFoundError as missing:
        name = (missing.name or "").partition(".")[0]
        sentence = f"{what} {_CALLED.get(name, name)}; install 'primal-attention[{extra}]'"
        raise MissingExtra(sentence, name=name) from missing


def is_installed(module: str) -> bool:
    """Whether a module could be imported; nothing is."""
    return find_spec(module) is not None
