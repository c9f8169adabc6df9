"""torch.nn.MultiheadAttention, by itself or inside torch's encoder and decoder layers."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from .base import Projection, Source, projection
from .converted import Call, Converted
from .masks import hidden_pairs, ignored_keys, union


class TorchAdapter:
    """nn.MultiheadAttention. Self-attention of a TransformerDecoderLayer counts as causal (say
    causal=False if it is not), its attention to the memory as cross-attention."""

    name = "torch.nn/MultiheadAttention"

    def read(self, module: nn.Module, parent: nn.Module) -> Source | None:
        if type(module) is not nn.MultiheadAttention:
            return None
        if not module._qkv_same_embed_dim:
            raise ValueError("keys or values have another width; expected kdim = vdim = embed_dim")
        if module.bias_k is not None or module.add_zero_attn:
            raise ValueError("it adds a bias or zero to its keys; expected neither")
        projection(module.out_proj)  # refuses a quantised one
        weights = module.in_proj_weight.chunk(3)
        biases: Any = (None,) * 3 if module.in_proj_bias is None else module.in_proj_bias.chunk(3)
        query, key, value = map(Projection, weights, biases)
        decoder = isinstance(parent, nn.TransformerDecoderLayer)
        return Source(
            num_heads=module.num_heads,
            query=query,
            key=key,
            value=value,
            output=projection(module.out_proj),
            causal=decoder and module is parent.self_attn,
            cross=decoder and module is parent.multihead_attn,
            dropout=module.dropout,
            batch_first=module.batch_first,
        )

    def wrap(self, module: nn.Module, primal: nn.Module) -> Converted:
        return ConvertedMultihead(primal)


class ConvertedMultihead(Converted):
    """Called as nn.MultiheadAttention is. Weights are never returned (need_weights must be False),
    except as the primal layer's own kernel, which `self.primal` gives."""

    # torch's encoder layers read these; False keeps their fused softmax path away
    _qkv_same_embed_dim = False

    @property
    def batch_first(self) -> bool:
        return bool(self.primal.batch_first)

    @property
    def num_heads(self) -> int:
        return int(self.primal.num_heads)  # type: ignore[arg-type]

    @property
    def in_proj_weight(self) -> Tensor:
        return self.primal.in_proj_weight  # type: ignore[return-value]

    @property
    def in_proj_bias(self) -> Tensor | None:
        return self.primal.in_proj_bias  # type: ignore[return-value]

    @property
    def out_proj(self) -> nn.Module:
        return self.primal.out_proj  # type: ignore[return-value]

    def translate(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = False,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> Call:
        if need_weights:
            raise ValueError(
                "need_weights=True; expected False, since there are no softmax weights any more "
                "(the induced kernel: layer.primal(x, need_weights=True))"
            )
        sequences, _ = self.primal._arrange(query, key, value, None)  # type: ignore[operator]
        if query.is_nested:
            if key_padding_mask is not None or attn_mask is not None:
                raise ValueError("a nested query comes with a mask; expected none")
            return Call(query)
        causal, batch = bool(self.primal.causal), sequences.x.shape[0]
        queries, keys = sequences.x.shape[1], sequences.y.shape[1]
        ignore = None
        if key_padding_mask is not None:
            padding = key_padding_mask if sequences.batched else key_padding_mask.unsqueeze(0)
            ignore = hidden_pairs(padding, true_means="hidden")
        if attn_mask is not None and not (is_causal and causal):  # is_causal vouches for the mask
            pairs = self._pairs(hidden_pairs(attn_mask, true_means="hidden"), batch)
            if ignore is not None:
                pairs = pairs | ignore[:, None, None]
            ignore = union(ignore, ignored_keys(
                pairs, batch=batch, queries=queries, keys=keys, causal=causal,
                cross=not sequences.is_self,
            ))  # fmt: skip
        elif is_causal and not causal:
            raise ValueError("is_causal=True; expected a layer that was converted with causal=True")
        elif causal and not is_causal and queries > 1:
            raise ValueError(
                "a causal layer was called without the causal mask, where the original would have "
                "seen ahead; expected attn_mask or is_causal=True (or convert with causal=False)"
            )
        if not sequences.batched and ignore is not None:
            ignore = ignore.squeeze(0)
        return Call(query, ignore, None if sequences.is_self else key)

    def _pairs(self, hidden: Tensor, batch: int) -> Tensor:
        """(N, M) or (batch * heads, N, M) as (B or 1, heads or 1, N, M)."""
        if hidden.dim() == 3 and hidden.shape[0] == batch * self.num_heads:
            by_head: Tensor = hidden.unflatten(0, (batch, self.num_heads))
            return by_head
        if hidden.dim() == 2:
            return hidden[None, None]
        raise ValueError(
            f"attn_mask has shape {tuple(hidden.shape)}; expected (queries, keys) or "
            f"({batch * self.num_heads}, queries, keys)"
        )

    def forward(self, *args: Any, **kwargs: Any) -> tuple[Tensor, None]:
        out, _ = self.attend(self.translate(*args, **kwargs))
        return out, None
