"""Any module that writes softmax(q k^T) v out itself, once, whatever else it does."""

from __future__ import annotations

from typing import Any

from torch import nn

from .base import HeadsSource
from .converted import Converted
from .heads import HEAD_NAMES, HeadsConverted, calls, read_heads
from .scores import Recognised

_LIBRARIES = ("torch.", "transformers.", "primal_attention.")


class WrittenAdapter:
    """For modules that say how many heads they have and call softmax. Whether it is an attention,
    and a causal one, a trace shows."""

    name = "torch/softmax"

    def read(self, module: Any, parent: nn.Module) -> HeadsSource | None:
        if type(module).__module__.startswith(_LIBRARIES):
            return None
        if not calls(module, "softmax") or not any(hasattr(module, name) for name in HEAD_NAMES):
            return None
        return read_heads(module)

    def wrap(self, module: nn.Module, primal: nn.Module) -> Converted:
        return ConvertedWritten(primal, module)


class ConvertedWritten(HeadsConverted):
    """Products of queries and keys inside this module are not formed; its mechanism answers."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with self.once(), Recognised(self.between):
            return self.module(*args, **kwargs)
