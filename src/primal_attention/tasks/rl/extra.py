"""The packages of the extra `rl`, imported where they are used."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def need(module: str, what: str) -> Any:
    """A module of the extra; an ImportError says what needs it and how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(
            f"{what} need {package}; install 'primal-attention[rl]'", name=package
        ) from error
