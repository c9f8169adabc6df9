"""The compiled kernels of this processor, or why there are none.

`PRIMAL_KERNELS=0` switches them off; the name of a level (`v3`, `v4`, `neon`) asks for that one.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from .build import HERE, levels, library_name

VARIABLE = "PRIMAL_KERNELS"
INTERFACE = 3  # primal_interface() in source/primal.cpp

NUMBERS = (
    "batch", "length", "width", "heads", "head_dim", "rank", "anchors", "map", "type", "causal",
    "threads",
)  # fmt: skip
PARAMETERS = (
    "w_dual", "w_e", "w_r", "weights", "w_in", "b_in", "root", "concat_w", "concat_b", "out_w",
    "out_b", "log_sharp",
)  # fmt: skip
ADDRESSES = (
    "x", "ignore", "keep", *PARAMETERS, "before", "seen", "saved",
    "out", "terms", "square", "after",
    "g", "g_terms", "g_square", "d_x", *(f"d_{name}" for name in PARAMETERS),
)  # fmt: skip
_LAYOUT = struct.Struct(f"{len(NUMBERS)}qd{len(ADDRESSES)}q")


def pack(numbers: Sequence[int], keep_scale: float, addresses: Sequence[int]) -> bytes:
    """`Call` of source/call.h: addresses in order, zero for what is not there; the last may be
    left out. By `struct`, which takes a tenth of the time of a structure of ctypes."""
    missing = len(ADDRESSES) - len(addresses)
    return _LAYOUT.pack(*numbers, keep_scale, *addresses, *[0] * missing)


class Kernels(NamedTuple):
    """A loaded library."""

    level: str
    library: ctypes.CDLL

    def run(self, name: str, *arguments: object) -> None:
        """Call a function of the library."""
        if getattr(self.library, name)(*arguments):
            raise MemoryError(f"{name} had not enough memory")


def kernels() -> Kernels | None:
    """The kernels, unless the environment switches them off or there are none."""
    wanted = os.environ.get(VARIABLE, "")
    return None if wanted == "0" else _load(wanted)[0]


def state() -> str:
    """One line for people: which kernels serve, or why none do."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted == "0":
        return f"native kernels: off ({VARIABLE}=0)"
    found, reason = _load(wanted)
    return f"native kernels: {reason if found is None else found.level}"


@functools.lru_cache(maxsize=8)
def _load(wanted: str) -> tuple[Kernels | None, str]:
    known = levels(platform.machine())
    if not known:
        return None, f"none for {platform.machine()}"
    if wanted not in ("", "1", *known):
        return (
            None,
            f"none, as {VARIABLE} is {wanted!r}; expected 0, 1 or one of {', '.join(known)}",
        )
    reason = "not compiled (python -m primal_attention.kernels.native.build)"
    for level in known:
        path = HERE / library_name(level)
        if wanted not in ("", "1", level) or not path.exists():
            continue
        try:
            library = ctypes.CDLL(str(path))
            fits = library.primal_interface() == INTERFACE
        except (OSError, AttributeError) as error:
            reason = f"{path.name} cannot be loaded: {error}"
            continue
        if not fits:
            reason = f"{path.name} is of another version; compile it again"
        elif not library.primal_runs_here():
            reason = f"{path.name} needs a newer processor"
        else:
            _use_team(library)
            return Kernels(level, library), ""
    return None, reason


def _use_team(library: ctypes.CDLL) -> None:
    """Share the threads of torch's OpenMP library; without it the kernels start their own."""
    for path in sorted((Path(torch.__file__).parent / "lib").glob("lib*omp*")):
        if path.name.startswith(("libgomp", "libomp", "libiomp")):
            try:
                address = ctypes.cast(ctypes.CDLL(str(path)).GOMP_parallel, ctypes.c_void_p)
            except (OSError, AttributeError):
                continue
            library.primal_use_team(address)
            return
