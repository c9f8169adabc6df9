"""timm's vision transformers (ViT, DeiT). timm itself is never imported."""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor, nn

from .base import Source, class_path, fused, projection
from .converted import Call, Converted
from .masks import hidden_pairs, ignored_keys

CLASSES = ("timm.layers.attention.Attention", "timm.models.vision_transformer.Attention")


class TimmAdapter:
    """timm's `Attention`: one projection for q, k and v, then `proj` and a dropout."""

    name = "timm/attention"

    def read(self, module: Any, parent: nn.Module) -> Source | None:
        if class_path(module) not in CLASSES:
            return None
        for name in ("q_norm", "k_norm", "norm"):
            kept = getattr(module, name, None)
            if not isinstance(kept, nn.Identity | None):
                raise ValueError(f"it has a {name}, {type(kept).__name__}; expected none")
        if not isinstance(getattr(module, "qkv", None), nn.Linear):
            raise ValueError("it has no projection qkv; expected one nn.Linear for q, k and v")
        return Source(
            num_heads=module.num_heads,
            **fused(module.qkv, module.qkv.out_features // 3),
            output=projection(module.proj),
            dropout=module.attn_drop.p,
        )

    def wrap(self, module: Any, primal: nn.Module) -> Converted:
        return ConvertedTimm(primal, module)


class ConvertedTimm(Converted):
    """Called as `attention(x, attn_mask=None)`, with the mask of scaled_dot_product_attention."""

    def __init__(self, primal: nn.Module, original: Any) -> None:
        super().__init__(primal)
        self.proj_drop = copy.deepcopy(original.proj_drop)

    def translate(
        self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
    ) -> Call:
        batch, length, _ = x.shape
        causal = bool(self.primal.causal)
        if is_causal and attn_mask is not None:
            raise ValueError("is_causal=True and attn_mask are both given; expected one of them")
        if attn_mask is None:
            if is_causal != causal and length > 1:
                raise ValueError(
                    f"is_causal is {is_causal}; expected {causal}, as it was converted"
                )
            return Call(x)
        hidden = hidden_pairs(attn_mask, true_means="visible")
        hidden = hidden.view((1,) * (4 - hidden.dim()) + tuple(hidden.shape))
        ignore = ignored_keys(hidden, batch=batch, queries=length, keys=length, causal=causal)
        return Call(x, ignore)

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        out, _ = self.attend(self.translate(*args, **kwargs))
        return self.proj_drop(out)  # type: ignore[no-any-return]
