"""The precision in which this room computes: never below float32."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def widen(x: Tensor) -> Tensor:
    """`x` in float32 if it is narrower (float16, bfloat16, integers), else `x` itself."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def without_autocast(device: torch.device) -> AbstractContextManager[object]:
    """A context in which products keep the precision of their inputs."""
    if torch.amp.is_autocast_available(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()  # meta, for one, knows no autocast
