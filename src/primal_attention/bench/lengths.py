"""Lengths as they stand on a command line: `512:65536:x2`, `512,1000`, `4096`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise


def parse_lengths(text: str) -> tuple[int, ...]:
    """`first:last:xK` is first, first * K, ... up to last; otherwise numbers that rise."""
    if ":" in text:
        return _geometric(text)
    parts = [part.strip() for part in text.split(",")]
    lengths = tuple(int(part) for part in parts if re.fullmatch(r"\d+", part))
    if len(lengths) < len(parts) or 0 in lengths or any(a >= b for a, b in pairwise(lengths)):
        raise ValueError(
            f"the length is {text!r}; expected a range such as 512:65536:x2, or numbers of at "
            "least 1 that rise, such as 512,1000"
        )
    return lengths


def format_lengths(lengths: Sequence[int]) -> str:
    """The shortest text that `parse_lengths` turns into these lengths."""
    if len(lengths) > 2:
        text = f"{lengths[0]}:{lengths[-1]}:x{lengths[1] // lengths[0]}"
        if lengths[1] // lengths[0] > 1 and parse_lengths(text) == tuple(lengths):
            return text
    return ",".join(map(str, lengths))


def _geometric(text: str) -> tuple[int, ...]:
    found = re.fullmatch(r"\s*(\d+):(\d+):x(\d+)\s*", text)
    first, last, factor = map(int, found.groups()) if found else (0, 0, 0)
    if first < 1 or last < first or factor < 2:
        raise ValueError(
            f"the length is {text!r}; expected first:last:xK with 1 <= first <= last and K >= 2, "
            "such as 512:65536:x2"
        )
    lengths = [first]
    while lengths[-1] * factor <= last:
        lengths.append(lengths[-1] * factor)
    return tuple(lengths)
