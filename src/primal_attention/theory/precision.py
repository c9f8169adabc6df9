"""The precision in which this room computes: never below float32."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def widen(x: Tensor) -> Tensor:
    """``x`` in float32 if it is narrower (float16, bfloat16, integers), else ``x`` itself."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def autocast_dtype(x: Tensor) -> torch.dtype:
    """The type in which autocast would multiply ``x``: its own where autocast is off or knows not
    the device, and for float64, which autocast leaves alone."""
    kind = x.device.type
    available = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.get_autocast_dtype(kind) if available and x.dtype != torch.float64 else x.dtype


def without_autocast(device: torch.device) -> AbstractContextManager[object]:
    """A context in which products keep the precision of their inputs."""
    if torch.amp.is_autocast_available(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()  # meta, for one, knows no autocast
