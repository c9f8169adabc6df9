"""The options of a model, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import torch

from ..attention import attention_info
from ..names import check_choice


class Place(TypedDict, total=False):
    """Where a layer makes its parameters, and in which type."""

    device: torch.device | str | None
    dtype: torch.dtype | None


def attention_settings(
    names: Sequence[str],
    given: Mapping[str, Mapping[str, Any]] | None,
    *,
    dropout: float,
    max_length: int,
    **common: Any,
) -> list[dict[str, Any]]:
    """The options of every layer's attention: those given for its name, and what the model knows.

    The latter are `dropout`, `max_length`, the options in `common`, and where a data-dependent
    attention may have up to `rank * rank_multi` anchors, no more than there are positions:
    n = min(s * rank_multi, N).
    """
    given = {} if given is None else given
    common |= {"dropout": dropout, "max_length": max_length}
    facts = {name: attention_info(name) for name in names}
    for name in given:
        check_choice("a key of attention_options", name, facts)
    settings = []
    for name in names:
        own, known = dict(given.get(name, {})), facts[name].options
        if "batch_first" in own:
            raise ValueError(
                f"attention_options[{name!r}] has batch_first; expected it to be left to the model"
            )
        defaults = {n: v for n, v in common.items() if n in known}
        settings.append(defaults | own | _anchors(own, known, max_length))
    return settings


def _anchors(own: Mapping[str, Any], known: Mapping[str, Any], max_length: int) -> dict[str, Any]:
    def value(name: str) -> Any:
        return own.get(name, known[name].default)

    if not {"anchors", "weights", "rank", "rank_multi"} <= set(known) or "rank" not in own:
        return {}
    if value("weights") != "data" or value("anchors") is not None:
        return {}
    numbers = (value("rank"), value("rank_multi"))
    if not all(isinstance(number, int) for number in numbers):
        return {}  # the layer will say what it expects
    return {"anchors": min(numbers[0] * numbers[1], max_length)}
