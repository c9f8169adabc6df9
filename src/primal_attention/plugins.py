"""Attentions and tasks of other packages.

A package names a module in the entry points of the group "primal_attention"; importing the module
registers what it has (`attention.register`, `tasks.register_task`). Modules are imported when a
name is looked up that is not known yet, or all names are asked for.
"""

from __future__ import annotations

import warnings
from importlib import metadata

GROUP = "primal_attention"

_loaded = False


def load_plugins() -> None:
    """Import the modules, once. One that fails is left out, with a warning."""
    global _loaded
    if _loaded:
        return
    _loaded = True  # first: a plugin may look up names itself
    for entry in metadata.entry_points(group=GROUP):
        try:
            entry.load()
        except Exception as error:
            warnings.warn(
                f"the plugin {entry.name!r} ({entry.value}) cannot be loaded: "
                f"{type(error).__name__}: {error}",
                RuntimeWarning,
                stacklevel=2,
            )
