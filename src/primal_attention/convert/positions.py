"""Longer inputs for models with learned positions: the table of positions is interpolated."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .sites import check_model

M = TypeVar("M", bound=nn.Module)

NAMES = ("position_embeddings", "position_embedding", "embed_positions", "wpe")
_LENGTHS = (
    "max_position_embeddings", "n_positions", "max_positions", "max_source_positions",
    "max_target_positions",
)  # fmt: skip


@torch.no_grad()
def extend_positions_(model: M, length: int) -> M:
    """Stretch the learned positions of a model in place, so that inputs of `length` fit.

    The rows of the table are placed evenly over the new range and interpolated linearly: the first
    and the last position stay what they were, neighbours come nearer to each other. The model's
    function changes, so do this before `adapt_`. `revert_` does not take it back. Positions of
    patches of an image stay: their number is that of the image.
    """
    check_model(model)
    tables = _tables(model)
    if not tables:
        raise ValueError(
            f"{type(model).__name__} has no table of learned positions; expected one called "
            f"{', '.join(NAMES)} (rotary and relative positions take any length; those of the "
            "patches of an image are not stretched)"
        )
    least = min(table.num_embeddings - _first(table) for _, table in tables)
    if isinstance(length, bool) or not isinstance(length, int) or length <= least:
        raise ValueError(
            f"length is {length!r}; expected an integer above the {least} positions that there are"
        )
    for parent, table in tables:
        first = _first(table)
        old = table.num_embeddings
        if length <= old - first:  # it is long enough
            continue
        rows = table.weight[first:]
        longer = F.interpolate(rows.t()[None].float(), length, mode="linear", align_corners=True)
        new = torch.cat([table.weight[:first], longer[0].t().to(rows.dtype)])
        table.weight = nn.Parameter(new, requires_grad=table.weight.requires_grad)
        table.num_embeddings = len(new)
        _stretch_buffers(parent, old, len(new))
        _note(model, old, len(new), first)
    return model


def positions_of(model: nn.Module) -> int | None:
    """How many positions a model has learned, in its longest table; None if it has none."""
    rooms = [table.num_embeddings - _first(table) for _, table in _tables(model)]
    return max(rooms, default=None)


def _tables(model: nn.Module) -> list[tuple[nn.Module, nn.Embedding]]:
    """Every table of learned positions, with the module that has it."""
    return [
        (parent, table)
        for parent in model.modules()
        for name, table in parent.named_children()
        if name in NAMES and isinstance(table, nn.Embedding)
        if not isinstance(getattr(parent, "patch_embedding", None), nn.Module)
    ]


def _first(table: Any) -> int:
    """The row of position 0: some models keep rows before it."""
    offset = getattr(table, "offset", None)
    if isinstance(offset, int):
        return offset
    return 0 if table.padding_idx is None else int(table.padding_idx) + 1


def _stretch_buffers(parent: nn.Module, old: int, new: int) -> None:
    """The numbers of positions, and zeros for types of tokens, which models keep beside."""
    for name, buffer in list(parent.named_buffers(recurse=False)):
        if buffer is None or buffer.dim() == 0 or buffer.shape[-1] != old:
            continue
        longer: Tensor = buffer.new_zeros(*buffer.shape[:-1], new)
        if name == "position_ids":
            longer = torch.arange(new, device=buffer.device).expand_as(longer).clone()
        persistent = name not in parent._non_persistent_buffers_set
        parent.register_buffer(name, longer.to(buffer.dtype), persistent=persistent)


def _note(model: nn.Module, old: int, new: int, first: int) -> None:
    """The new length in the configuration of a Hugging Face model, which counts the rows of the
    table or the positions."""
    known = {old: new, old - first: new - first}
    for config in {id(c): c for m in model.modules() if (c := getattr(m, "config", None))}.values():
        for name in _LENGTHS:
            if getattr(config, name, None) in known:
                setattr(config, name, known[getattr(config, name)])
