"""The precision in which this room computes: never below float32."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

# asked beforehand, since the compiler of torch 2.6 cannot ask; meta, for one, knows no autocast
AUTOCAST = frozenset(
    kind
    for kind in ("cpu", "cuda", "xpu", "mps", "hpu", "xla", "mtia")
    if torch.amp.is_autocast_available(kind)
)


def widen(x: Tensor) -> Tensor:
    """`x` in float32 if it is narrower (float16, bfloat16, integers), else `x` itself."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def without_autocast(device: torch.device) -> AbstractContextManager[object]:
    """A context in which products keep the precision of their inputs."""
    if knows_autocast(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


def knows_autocast(kind: str) -> bool:
    """Whether devices of a kind do."""
    return kind in AUTOCAST or (
        not torch.compiler.is_compiling() and torch.amp.is_autocast_available(kind)
    )
