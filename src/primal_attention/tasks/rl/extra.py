"""The packages of the extra `rl`, imported where they are used."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from ...runs.extras import MissingExtra, needs_extra


def need(module: str, what: str) -> Any:
    """A module of the extra; an ImportError says what needs it and how to install it."""
    package = module.partition(".")[0]
    try:
        with needs_extra("rl", f"{what} need"):
            return import_module(module)
    except MissingExtra:
        raise
    except Exception as error:  # mujoco without the library of the renderer in MUJOCO_GL
        renderer = os.environ.get("MUJOCO_GL")
        place = f" with MUJOCO_GL={renderer}" if renderer else ""
        reason = f"{type(error).__name__}: {error}"
        raise ImportError(
            f"{what} need {package}, and its import fails{place} ({reason}); expected an "
            "installation that works",
            name=package,
        ) from error
