"""Any module that calls torch's scaled_dot_product_attention once, whatever else it does."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from .base import HeadsSource
from .converted import Converted
from .heads import Between, HeadsConverted, calls, read_heads

_FUNCTION = "scaled_dot_product_attention"


class SdpaAdapter:
    """For modules that no library names: heads and their width by the usual attributes. A module
    counts as causal if its call says so, which a trace shows."""

    name = "torch/scaled_dot_product_attention"

    def read(self, module: Any, parent: nn.Module) -> HeadsSource | None:
        if type(module).__module__.startswith(("torch.", "transformers.")):
            return None
        if not calls(module, _FUNCTION):
            return None
        causal = bool(getattr(module, "is_causal", getattr(module, "causal", False)))
        return read_heads(module, causal=causal)

    def wrap(self, module: nn.Module, primal: nn.Module) -> Converted:
        return ConvertedSdpa(primal, module)


class ConvertedSdpa(HeadsConverted):
    """Calls of the function inside this module are answered by its mechanism."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with self.once(), _InItsPlace(self):
            return self.module(*args, **kwargs)


class _InItsPlace(TorchFunctionMode):
    def __init__(self, converted: HeadsConverted) -> None:
        super().__init__()
        self.converted = converted

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is not torch.nn.functional.scaled_dot_product_attention:
            return func(*args, **kwargs)
        return self._answer(*args, **kwargs)

    def _answer(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        if query.dim() != 4:
            raise ValueError(
                f"queries have shape {tuple(query.shape)}; expected (batch, heads, length, width)"
            )
        if attn_mask is not None and attn_mask.dim() < 4:
            attn_mask = attn_mask.view((1,) * (4 - attn_mask.dim()) + tuple(attn_mask.shape))
        call = Between(query, key, value, attn_mask, None, scale, is_causal)
        return self.converted.between(call)
