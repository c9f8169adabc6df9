"""Packages whose names are imported when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazily(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package; `homes` says which module has a name: {".series":
    "SeriesSet SeriesData"}."""
    found = {name: home for home, names in homes.items() for name in names.split()}

    def get(name: str) -> Any:
        if name not in found:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(found[name], package), name)
        setattr(sys.modules[package], name, value)
        return value

    return get
