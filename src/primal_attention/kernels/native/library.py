"""The compiled kernels of this processor, or why there are none.

`PRIMAL_KERNELS=0` switches them off; the name of a level (`v3`, `v4`, `neon`) asks for that one.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
from pathlib import Path
from typing import NamedTuple

import torch

from .build import HERE, levels, library_name

VARIABLE = "PRIMAL_KERNELS"
INTERFACE = 1  # primal_interface() in source/primal.cpp

_NUMBERS = (
    "batch",
    "length",
    "width",
    "heads",
    "head_dim",
    "rank",
    "map",
    "type",
    "causal",
    "threads",
)
_INPUTS = (
    "x", "ignore", "keep", "w_in", "b_in", "w_dual", "w_e", "w_r", "anchors", "weights", "root",
    "concat_w", "concat_b", "out_w", "out_b", "before", "seen",
)  # fmt: skip
_RESULTS = ("out", "terms", "saved", "after")
_GRADIENTS = (
    "g", "g_terms", "d_x", "d_w_in", "d_b_in", "d_w_dual", "d_w_e", "d_w_r", "d_weights", "d_root",
    "d_concat_w", "d_concat_b", "d_out_w", "d_out_b",
)  # fmt: skip


class Call(ctypes.Structure):
    """One call of a layer: `Call` of source/call.h, member by member."""

    _fields_ = (
        [(name, ctypes.c_int64) for name in _NUMBERS]
        + [("keep_scale", ctypes.c_double)]
        + [
            (name, ctypes.c_int64 if name == "anchors" else ctypes.c_void_p)
            for name in (*_INPUTS, *_RESULTS, *_GRADIENTS)
        ]
    )


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
