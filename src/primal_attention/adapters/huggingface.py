"""Hugging Face transformers: what all its attentions have in common, and the encoders.

Modules are matched by the name of their class (transformers 5.x), so nothing is imported here.
"""

from __future__ import annotations

import copy
import sys
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn

from .base import Source, class_path, projections
from .converted import Call, Converted
from .masks import expect_same_past, hidden_pairs, ignored_keys

# Arguments that change which positions see each other, outside the mask: packed sequences.
_REFUSED = ("cu_seq_lens_q", "cu_seq_lens_k", "cu_seqlens", "head_mask", "encoder_hidden_states")


def is_transformers(module: nn.Module, *names: str) -> bool:
    """Whether a module is of one of these classes of transformers.models, exactly."""
    path, _, name = class_path(module).rpartition(".")
    return path.startswith("transformers.models.") and name in names


def is_causal(module: nn.Module) -> bool:
    """Whether a decoder's attention is causal: a config may ask for both directions."""
    config = getattr(module, "config", None)
    return bool(getattr(module, "is_causal", False) and getattr(config, "is_causal", True))


class HuggingFaceConverted(Converted):
    """An attention that is called with hidden states, a mask of True = visible (or 0 and the
    smallest number, or two dimensions), perhaps a cache, and keywords; returns (output, None)."""

    def __init__(self, primal: nn.Module, layer_idx: int | None = None) -> None:
        super().__init__(primal)
        self.layer_idx = layer_idx

    def translate(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        past_key_values: Any = None,
        position_embeddings: tuple[Tensor, Tensor] | None = None,
        **others: Any,
    ) -> Call:
        self.refuse(others)
        batch, length, _ = hidden_states.shape
        past, state = 0, None
        causal = bool(self.primal.causal)
        if past_key_values is not None and not causal:
            raise ValueError(
                "a cache was given to a layer that is not causal; expected past_key_values=None "
                "(use_cache=False), or a conversion with causal=True"
            )
        if past_key_values is not None:
            past, state = self.slot(past_key_values).recall(hidden_states.device)
        ignore = self.ignored(attention_mask, batch, length, past)
        if past:
            ignore = expect_same_past(ignore, past, state)
        return Call(hidden_states, ignore, rotation=position_embeddings, state=state)

    def ignored(self, mask: Any, batch: int, length: int, past: int) -> Tensor | None:
        """(B, past + N): which positions the mask hides."""
        if mask is None:
            return None
        hidden = hidden_pairs(mask, true_means="visible")
        hidden = hidden[:, None, None] if hidden.dim() == 2 else hidden
        return ignored_keys(
            hidden,
            batch=batch,
            queries=length,
            keys=past + length,
            # a mask of whole keys goes with a causal layer if the library adds the rest itself
            causal=bool(self.primal.causal) and mask.dim() != 2,
        )

    def refuse(self, others: dict[str, Any]) -> None:
        for name in _REFUSED:
            if others.get(name) is not None:
                raise ValueError(f"{name} is given; expected None, primal attention knows no such")
        if others.get("output_attentions") or attentions_are_collected():
            raise ValueError("output_attentions=True; expected False, since there are no weights")

    def slot(self, cache: Any) -> Any:
        """This layer's place in a cache."""
        from .huggingface_cache import slot

        if self.layer_idx is None:
            raise ValueError("the attention has no layer_idx; expected one, to find its cache")
        return slot(cache, self.layer_idx)

    def forward(
        self, hidden_states: Tensor, attention_mask: Tensor | None = None, **kwargs: Any
    ) -> tuple[Tensor, None]:
        out, state = self.attend(self.translate(hidden_states, attention_mask, **kwargs))
        if (cache := kwargs.get("past_key_values")) is not None:
            self.slot(cache).remember(state, hidden_states.shape[1])
        return out, None


def attentions_are_collected() -> bool:
    """Whether the model was called with output_attentions=True: most models do not hand it on, and
    the tuple of weights would silently lack this layer's."""
    library = sys.modules.get("transformers.utils.output_capturing")
    collector = getattr(library, "_active_collector", None)
    if collector is None or torch.compiler.is_compiling():
        return False
    return "attentions" in (collector.get() or ())


# -- encoders --------------------------------------------------------------------------------------


@dataclass
class EncoderAdapter:
    """An encoder's attention of four linear layers: its classes, and what its parts are called."""

    name: str
    classes: tuple[str, ...]
    heads: str
    parts: tuple[str, str, str, str]  # of queries, keys, values and outputs
    dropout: str

    def read(self, module: nn.Module, parent: nn.Module) -> Source | None:
        if not is_transformers(module, *self.classes):
            return None
        heads, dropout = attrgetter(self.heads, self.dropout)(module)
        parts = projections(*attrgetter(*self.parts)(module))
        return Source(num_heads=heads, **parts, dropout=dropout)

    def wrap(self, module: nn.Module, primal: nn.Module) -> Converted:
        return HuggingFaceConverted(primal)


VIT = EncoderAdapter(
    "transformers/vit", ("ViTAttention", "DeiTAttention"), "num_attention_heads",
    ("q_proj", "k_proj", "v_proj", "o_proj"), "attention_dropout",
)  # fmt: skip
DISTILBERT = EncoderAdapter(
    "transformers/distilbert", ("DistilBertSelfAttention",), "n_heads",
    ("q_lin", "k_lin", "v_lin", "out_lin"), "dropout.p",
)  # fmt: skip


class BertAdapter:
    """Self-attention of BERT and RoBERTa, as encoder or decoder, with the residual connection and
    the layer norm that these models keep in the same module."""

    name = "transformers/bert"

    def read(self, module: Any, parent: nn.Module) -> Source | None:
        if not is_transformers(module, "BertAttention", "RobertaAttention"):
            return None
        if module.is_cross_attention:
            return None
        inner = module.self
        return Source(
            num_heads=inner.num_attention_heads,
            **projections(inner.query, inner.key, inner.value, module.output.dense),
            causal=is_causal(inner),
            dropout=inner.dropout.p,
        )

    def wrap(self, module: Any, primal: nn.Module) -> Converted:
        return ConvertedBert(primal, module)


class ConvertedBert(HuggingFaceConverted):
    """LayerNorm(x + dropout(attention(x)))."""

    def __init__(self, primal: nn.Module, original: Any) -> None:
        super().__init__(primal, original.self.layer_idx)
        self.dropout = copy.deepcopy(original.output.dropout)
        self.LayerNorm = copy.deepcopy(original.output.LayerNorm)

    def forward(
        self, hidden_states: Tensor, attention_mask: Tensor | None = None, **kwargs: Any
    ) -> tuple[Tensor, None]:
        out, _ = super().forward(hidden_states, attention_mask, **kwargs)
        return self.LayerNorm(hidden_states + self.dropout(out)), None
