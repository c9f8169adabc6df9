"""What a `TableNet` keeps of a context: taken apart, added up, stored as tensors by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from ..attention.summary import KeptRows, KeptSums, Summary
from .table import TableNet, TableNets


def subtracted(from_: Sequence[Summary], other: Sequence[Summary]) -> list[Summary]:
    """Summaries of blocks without those of rows that are forgotten."""
    found: list[Summary] = []
    for whole, part in zip(from_, other, strict=True):
        if not (isinstance(whole, KeptSums) and isinstance(part, KeptSums)):
            raise ValueError(
                "rows cannot be taken from a context that is kept row by row; expected an "
                'attention whose summary is "constant"'
            )
        found.append(whole - part)
    return found


def sums_of(kept: Summary) -> KeptSums:
    """A summary that is a sum over rows."""
    if not isinstance(kept, KeptSums):
        raise ValueError(
            'the context is kept row by row; expected an attention whose summary is "constant"'
        )
    return kept


def to_tensors(summaries: Sequence[Summary]) -> dict[str, Tensor]:
    """Summaries by the names `<block>.count`, `<block>.<part>`, `<block>.log_scale`."""
    found: dict[str, Tensor] = {}
    for k, kept in enumerate(summaries):
        found[f"{k}.count"] = kept.count
        if isinstance(kept, KeptSums):
            parts = kept.sums
            if kept.log_scale is not None:
                found[f"{k}.log_scale"] = kept.log_scale
        elif isinstance(kept, KeptRows):
            parts = kept.rows
        else:
            raise TypeError(f"a summary is a {type(kept).__name__}; expected sums or rows")
        found |= {f"{k}.{i}": part for i, part in enumerate(parts)}
    return found


def from_tensors(net: TableNet | TableNets, stored: Mapping[str, Tensor]) -> list[Summary]:
    """The summaries that a net can read: the inverse of `to_tensors`."""
    found: list[Summary] = []
    for k, attention in enumerate(net.attentions):
        own = {n.removeprefix(f"{k}."): t for n, t in stored.items() if n.startswith(f"{k}.")}
        count, scale = own.pop("count"), own.pop("log_scale", None)
        parts = tuple(own[str(i)] for i in range(len(own)))
        if attention is None or attention.summary == "constant":
            adds = getattr(attention, "weights", "") != "data"
            found.append(KeptSums(count, True, parts, scale, adds))
        else:
            found.append(KeptRows(count, True, parts, None))
    return found
