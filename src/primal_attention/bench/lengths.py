"""Time and memory of a model against length, as it was and as it is: one sequence, no gradients."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import nn

from ..convert import from_pretrained
from ..convert.opening import open_model, read_batches
from ..convert.positions import extend_positions_
from .memory import MemoryMeter, NotMeasured, Peak

LENGTHS = (128, 512, 2048, 8192)
SECONDS = 60.0  # that one forward may take
SHORT = 16  # positions of a first forward, which is not measured
M_MMAP_THRESHOLD = -3  # of glibc


class Pace(NamedTuple):
    """Both models at one length: seconds of a forward, and megabytes above the model itself."""

    length: int
    original: Peak
    converted: Peak


def lengths_of(model: nn.Module) -> list[int]:
    """Lengths that the model takes, its longest among them."""
    most = getattr(getattr(model, "config", None), "max_position_embeddings", LENGTHS[-1])
    most = min(int(most), LENGTHS[-1])
    return sorted({*(each for each in LENGTHS if each < most), most})


def paces(
    original: str,
    converted: str,
    batches: str,
    lengths: Iterable[int],
    *,
    class_name: str | None = None,
    extended: int | None = None,
) -> list[Pace]:
    """Of two folders (or a name of the hub first), by inputs in a file, each forward in a process
    of its own. A length at which one of them has no figures is left out."""
    maker = f"{__name__}:forward_of"
    found = []
    with MemoryMeter("transformers", __name__) as meter:
        for length in lengths:
            first = (original, False, batches, length, class_name, extended)
            second = (converted, True, batches, length, class_name, None)
            with suppress(NotMeasured):
                both = [meter.peak(maker, *each, seconds=SECONDS) for each in (first, second)]
                found.append(Pace(length, *both))
    return found


def forward_of(
    source: str, converted: bool, batches: str, length: int, class_name: str | None,
    extended: int | None,
) -> Callable[[], object]:  # fmt: skip
    """A forward of a saved model at one sequence of so many tokens, by those of a file."""
    _keep_no_holes()
    model: Any = from_pretrained(source) if converted else open_model(source, class_name)[0]
    if extended is not None:
        extend_positions_(model, extended)
    model.eval()
    tokens = read_batches(batches, 1)[0]["input_ids"]
    row = tokens.repeat(1, -(-length // tokens.shape[1]))[:, :length]

    @torch.no_grad()
    def forward() -> object:
        return model(input_ids=row)

    with torch.no_grad():
        model(input_ids=row[:, :SHORT])
    return forward


def _keep_no_holes() -> None:
    """Let the C library give large blocks back as they are freed, so that memory is what is in
    use, and not what the order of all blocks before it left between them."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").mallopt(M_MMAP_THRESHOLD, 2**20)
