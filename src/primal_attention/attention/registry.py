"""All attentions by name. A mechanism registers itself in its own file."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import nn

from ..names import unknown
from ..plugins import load_plugins

T = TypeVar("T", bound=type[nn.Module])


@dataclass(frozen=True)
class AttentionInfo:
    """What a mechanism is and what it can do."""

    name: str
    build: type[nn.Module]
    paper: str
    cost: str  # time in the length N
    causal: bool
    cross: bool
    streaming: bool
    any_length: bool
    pair_masks: bool = False  # attn_mask may hide or weight single pairs; padding masks all honour

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        """The constructor's keyword options with their types and defaults."""
        parameters = inspect.signature(self.build).parameters
        return {n: p for n, p in parameters.items() if p.kind is p.KEYWORD_ONLY}


_registry: dict[str, AttentionInfo] = {}


def register(name: str, **facts: Any) -> Callable[[T], T]:
    """Class decorator: make an attention available under a name."""

    def add(build: T) -> T:
        if name in _registry:
            raise ValueError(f"attention {name!r} is registered twice")
        _registry[name] = AttentionInfo(name=name, build=build, **facts)
        return build

    return add


def available_attentions() -> tuple[str, ...]:
    """The names that `make_attention` knows."""
    load_plugins()
    return tuple(sorted(_registry))


def attention_info(name: str) -> AttentionInfo:
    """What is known about an attention."""
    if name not in _registry and name not in (known := available_attentions()):
        raise ValueError(unknown("attention", name, known))
    return _registry[name]


def make_attention(name: str, embed_dim: int, num_heads: int, **options: Any) -> nn.Module:
    """An attention layer by name, e.g. `make_attention("primal", 64, 2, rank=20)`."""
    info = attention_info(name)
    for option in options:
        if option not in info.options:
            known = sorted(info.options)
            raise ValueError(unknown(f"option of attention {name!r}:", option, known))
    needed = [n for n, p in info.options.items() if p.default is p.empty and n not in options]
    if needed:
        raise ValueError(f"attention {name!r} expects the option {needed[0]!r}, which is not given")
    return info.build(embed_dim, num_heads, **options)
