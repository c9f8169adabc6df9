"""Hugging Face transformers: causal decoders, whose state lives in the library's own cache."""

from __future__ import annotations

import copy
import sys
from typing import Any

from torch import Tensor, nn

from ..attention.primal.rotary import RotaryPrimalAttention, keep_heads
from .base import Source, fused, projection, projections
from .converted import Converted
from .huggingface import HuggingFaceConverted, is_causal, is_transformers
from .huggingface_interface import ConvertedInterface


class GPT2Adapter:
    """GPT-2 and the Decision Transformer."""

    name = "transformers/gpt2"

    def read(self, module: Any, parent: nn.Module) -> Source | None:
        if not is_transformers(module, "GPT2Attention", "DecisionTransformerGPT2Attention"):
            return None
        if module.is_cross_attention:
            return None
        return Source(
            num_heads=module.num_heads,
            **fused(module.c_attn, module.embed_dim),
            output=projection(module.c_proj),
            causal=is_causal(module),
            dropout=module.attn_dropout.p,
        )

    def wrap(self, module: Any, primal: nn.Module) -> Converted:
        return ConvertedGPT2(primal, module)


class ConvertedGPT2(HuggingFaceConverted):
    """GPT-2 keeps the dropout of the residual branch in its attention."""

    def __init__(self, primal: nn.Module, original: Any) -> None:
        super().__init__(primal, original.layer_idx)
        self.resid_dropout = copy.deepcopy(original.resid_dropout)

    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, None]:
        if args:  # past_key_values comes before the mask here
            raise ValueError("positional arguments beside hidden_states; expected keywords")
        out, _ = super().forward(hidden_states, **kwargs)
        return self.resid_dropout(out), None


class RotaryAdapter:
    """Llama, Qwen2 and Qwen3: rotary positions, grouped key heads, heads that may be normalised."""

    name = "transformers/rotary"

    def read(self, module: Any, parent: nn.Module) -> Source | None:
        if not is_transformers(module, "LlamaAttention", "Qwen2Attention", "Qwen3Attention"):
            return None
        if getattr(module, "sliding_window", None) is not None or not is_causal(module):
            return None  # see the adapter of the attention interface
        heads = module.q_proj.weight.shape[0] // module.head_dim
        return Source(
            num_heads=heads,
            key_heads=heads // module.num_key_value_groups,
            **projections(module.q_proj, module.k_proj, module.v_proj, module.o_proj),
            causal=True,
            rotary=True,
            dropout=module.attention_dropout,
        )

    def wrap(self, module: Any, primal: nn.Module) -> Converted:
        if not isinstance(primal, RotaryPrimalAttention):
            return ConvertedInterface(primal, module)
        # the rotation of the module's own file: conventions differ between models
        keep_heads(primal, module, sys.modules[type(module).__module__].apply_rotary_pos_emb)
        return HuggingFaceConverted(primal, module.layer_idx)
