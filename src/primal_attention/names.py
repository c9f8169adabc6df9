"""What to say about a name that does not exist: the nearest one that does."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


def near(name: Any, known: Iterable[str]) -> str:
    """ " (did you mean ...?)", or nothing where no known name is similar."""
    found = difflib.get_close_matches(name, list(known), n=1) if isinstance(name, str) else []
    return f" (did you mean {found[0]!r}?)" if found else ""


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """The message for an unknown name of a kind."""
    names = list(known)
    return f"unknown {kind} {name!r}{near(name, names)}; expected one of {', '.join(names)}"


def check_choice(name: str, value: Any, choices: Iterable[str]) -> None:
    """Raise unless the value of an option is one of the choices."""
    known = list(choices)
    if value not in known:
        listed = ", ".join(map(repr, known))
        raise ValueError(f"{name} is {value!r}{near(value, known)}; expected one of {listed}")
