"""All attentions by name. A mechanism registers itself in its own file."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
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
    causal: bool  # has the option causal=True
    cross: bool  # keys may be those of another sequence
    streaming: bool  # has init_state, prefill and step
    any_length: bool  # no maximal length must be given
    pair_masks: bool = False  # attn_mask may hide or weight single pairs; padding masks all honour
    summary: str | None = None  # what `summarise` keeps: "constant" or "linear" in the context

    @cached_property
    def options(self) -> dict[str, inspect.Parameter]:
        """The constructor's keyword options with their types and defaults."""
        return _options(self.build)


_registry: dict[str, AttentionInfo] = {}


def register(name: str, *, paper: str, cost: str, **facts: Any) -> Callable[[T], T]:
    """Class decorator: make an attention available under a name.

    `cost` is the growth of time with the length, such as "O(N)". The other facts follow from the
    class; one that is no `Attention` may give those that do not, `cross=True` or `pair_masks=True`.
    """

    def add(build: T) -> T:
        if name in _registry:
            raise ValueError(f"attention {name!r} is registered twice")
        known = _facts(build) | facts
        _registry[name] = AttentionInfo(name=name, build=build, paper=paper, cost=cost, **known)
        return build

    return add


def _options(build: type[nn.Module]) -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(build).parameters
    return {n: p for n, p in parameters.items() if p.kind is p.KEYWORD_ONLY}


def _facts(build: type[nn.Module]) -> dict[str, Any]:
    """What the class itself says about the mechanism."""
    options = _options(build)
    longest = options.get("max_length")
    return {
        "causal": "causal" in options,
        "cross": getattr(build, "has_cross", False),
        "streaming": all(hasattr(build, name) for name in ("init_state", "prefill", "step")),
        "any_length": longest is None or longest.default is not longest.empty,
        "pair_masks": getattr(build, "has_pair_masks", False),
        "summary": getattr(build, "summary", None) if getattr(build, "has_cross", False) else None,
    }


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
