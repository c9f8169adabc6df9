"""Every module of transformers that calls the library's attention interface.

Nothing is said here of single models: projections, rotary positions, normalised or grouped heads,
caches and residuals stay in the hands of the module, which is kept.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from .base import HeadsSource, class_path
from .converted import Converted
from .heads import Between, HeadsConverted, arguments, mentions, read_heads
from .huggingface import attentions_are_collected

NAME = "primal_attention"  # of our function in the interface
_CROSS = ("encoder_attn", "EncDecAttention", "crossattention", "cross_attn", "encoder_attention")
# What may be handed to the interface without changing the result.
_HARMLESS = {
    "output_attentions", "output_hidden_states", "use_cache", "cache_position", "position_ids",
    "sliding_window", "deterministic", "return_dict", "position_embeddings", "max_seqlen",
    "num_items_in_batch", "is_causal", "layer_head_mask", "cache",
}  # fmt: skip


class InterfaceAdapter:
    """Reads heads and their width from the module, and what it does beside softmax."""

    name = "transformers/interface"

    def read(self, module: Any, parent: nn.Module) -> HeadsSource | None:
        if not class_path(module).startswith("transformers.models."):
            return None
        if not mentions(module, "ALL_ATTENTION_FUNCTIONS"):
            return None
        places = [name for name, child in parent.named_children() if child is module]
        cross = any(name in _CROSS for name in places) or "Cross" in type(module).__name__
        causal = bool(getattr(module, "is_causal", False)) and not cross
        dropped = []
        if window(module) is not None:
            dropped.append(f"its window of {window(module)} positions: it will see all")
        if has_bias(module):
            dropped.append("the relative bias of its positions")
        return read_heads(module, causal=causal, cross=cross, dropped=tuple(dropped))

    def wrap(self, module: nn.Module, primal: nn.Module) -> Converted:
        return ConvertedInterface(primal, module)


class ConvertedInterface(HeadsConverted):
    """The function that the copy finds in the interface is this module's."""

    def __init__(self, primal: nn.Module, original: nn.Module) -> None:
        super().__init__(primal, original)
        from transformers import AttentionInterface

        AttentionInterface.register(NAME, _attend)
        self.module.config._attn_implementation = NAME  # type: ignore[union-attr]
        # past nn.Module, which would make this module a part of its part
        self.module.__dict__["_converted"] = self
        self.window, self.biased = window(original), has_bias(original)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        given = arguments(self.module, args, kwargs)
        if attentions_are_collected() or given.get("output_attentions"):
            raise ValueError("output_attentions=True; expected False, since there are no weights")
        cache = given.get("past_key_values")
        if cache is None or self.cross or not bool(self.primal.causal):
            return self.module(*args, **kwargs)
        from .huggingface_cache import slot

        place = slot(cache, int(self.module.layer_idx))  # type: ignore[arg-type]
        with place.passing_on():
            device = next(part.device for part in given.values() if isinstance(part, Tensor))
            self._past = place.recall(device)
            try:
                out = self.module(*args, **kwargs)
            finally:
                self._past = (0, None)
        new = out[0] if isinstance(out, tuple) else out
        place.remember(self._after, new.shape[1])
        return out


def window(module: Any) -> int | None:
    """How many positions a module sees, if not all."""
    config = getattr(module, "config", None)
    found = getattr(module, "sliding_window", getattr(config, "sliding_window", None))
    return found if isinstance(found, int) else None


def has_bias(module: nn.Module) -> bool:
    """Whether a module adds numbers to the scores that depend on positions."""
    return any(mentions(module, name) for name in ("position_bias", "relative_position_bias"))


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    position_bias: Tensor | None = None,
    is_causal: bool | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """The attention function of transformers, in a module that was converted."""
    converted: ConvertedInterface = module.__dict__["_converted"]
    for name, given in others.items():
        if given is not None and name not in _HARMLESS:
            raise ValueError(
                f"{name} is handed to its attention function; expected nothing but queries, keys, "
                "values, a mask, a bias and a scale"
            )
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    call = Between(query, key, value, attention_mask, position_bias, scaling, bool(causal))
    return converted.between(call).transpose(1, 2).contiguous(), None
