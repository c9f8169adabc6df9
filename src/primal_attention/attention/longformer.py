"""Longformer: every position sees a window around it, and some positions see everything."""

from __future__ import annotations

import torch
from torch import Tensor

from ..kernels.dropped_softmax import softmax_attention
from ..kernels.ordering import permute, valid_first
from .base import check_positive
from .cost import Terms
from .masks import visible_keys
from .projected import MixingAttention
from .registry import register

__all__ = ["LongformerAttention"]

BLOCK = 32  # least number of queries that share a block of keys


@register(
    "longformer",
    paper="Beltagy, Peters, Cohan: Longformer, the Long-Document Transformer, arXiv 2020",
    cost="O(N w)",
)
class LongformerAttention(MixingAttention):
    """Softmax over a sliding window and a few global positions. Per head, for the positions of a
    sequence of n,

        K_ij = softmax_j(<q_i, k_j> / sqrt(p))  over  j in window(i) or j < g or i < g

    with g = global_tokens: the first g positions see all and are seen by all. window(i) are the
    w = window positions around i, w // 2 of them before it. At both ends of the sequence the window
    is moved inwards, so every position sees min(w, n) keys, and w >= n is softmax attention.
    A causal layer sees the last w positions, itself included, and the first g.

    Queries go in blocks of w / 2, each with the keys that any of its windows reaches, so memory is
    O(N w). Positions are counted among the valid ones, wherever ignored ones stand between them.

    The published code differs in two points: there the window hangs over the ends of the sequence,
    and global attention has query, key and value projections of its own. Here both kinds share
    them: the parameters are those of nn.MultiheadAttention, and so a long window is exactly
    softmax.

    Args:
        window: w, number of positions that a position sees.
        global_tokens: g, number of first positions that see all and are seen by all.
    """

    has_cross = False

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        window: int = 128,
        global_tokens: int = 0,
        causal: bool = False,
        bias: bool = True,
        dropout: float = 0.0,
        batch_first: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_positive(window=window)
        if global_tokens != 0:  # which means none
            check_positive(global_tokens=global_tokens)
        super().__init__(
            embed_dim, num_heads, causal=causal, bias=bias, dropout=dropout,
            batch_first=batch_first, device=device, dtype=dtype,
        )  # fmt: skip
        self.window, self.global_tokens = int(window), int(global_tokens)

    def cost(self, length: int, batch: int = 1) -> Terms:
        tokens, block, d = min(self.global_tokens, length), self._block(length), self.embed_dim
        keys = min(block - 1 + self.window, length) + tokens
        queries = -(-length // block) * block
        flops, kept, working = self._projection_cost(batch * length)
        flops += batch * 4 * d * (queries * keys + tokens * length)
        gathered = batch * 2 * d * (queries // block * keys + queries)
        return Terms(flops, kept + gathered, working + gathered)

    def _block(self, length: int) -> int:
        return min(max(self.window // 2, BLOCK), length)

    def _mix(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        length = q.shape[2]
        if ignore is None:
            order = torch.arange(length, device=q.device).unsqueeze(0)  # (1, N)
            count = order.new_full((1, 1, 1), length)
        else:
            order, place = valid_first(ignore)
            count = (~ignore).sum(1).clamp(min=1)[:, None, None]  # (B, 1, 1)
        queries, keys, visible = self._blocks(length, count)
        keys = _at(order, keys)
        mixed = self._softmax(
            _take(q, _at(order, queries)), _take(k, keys), _take(v, keys),
            visible.expand(q.shape[0], -1, -1, -1).flatten(0, 1).unsqueeze(1),
        )  # (B * blocks, h, block, c)  # fmt: skip
        out: Tensor = mixed.transpose(1, 2).unflatten(0, (q.shape[0], keys.shape[1])).flatten(1, 2)
        if self.global_tokens and not self.causal:
            chosen = order[:, : self.global_tokens]
            first = _take(q, chosen.unsqueeze(1))
            above = self._softmax(first, k, v, visible_keys(ignore))  # (B, h, g, c)
            out = torch.cat([above.transpose(1, 2), out[:, chosen.shape[1] :]], 1)
        out = out.transpose(1, 2)
        return out[:, :, :length] if ignore is None else permute(out[:, :, :length], place)

    def _blocks(self, length: int, count: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Ranks among the valid positions, of which there are count (B, 1, 1): of the queries
        (B, blocks, block), of the keys of each block (B, blocks, g + reach), and which of these
        each query sees (B, blocks, block, g + reach)."""
        block = self._block(length)
        ranks = torch.arange(-(-length // block) * block, device=count.device).view(1, -1, block)
        queries = ranks.minimum(count - 1)
        if self.causal:
            start = (queries - self.window + 1).clamp(min=0)
            stop = queries + 1
        else:
            start = (queries - self.window // 2).minimum(count - self.window).clamp(min=0)
            stop = (start + self.window).minimum(count)
        reach = torch.arange(min(block - 1 + self.window, length), device=count.device)
        keys = start[..., :1] + reach  # (B, blocks, reach)
        key = keys.unsqueeze(2)
        visible = (key >= start.unsqueeze(-1)) & (key < stop.unsqueeze(-1))
        if self.global_tokens:
            first = torch.arange(min(self.global_tokens, length), device=count.device)
            shown = first < (stop.unsqueeze(-1) if self.causal else count.unsqueeze(-1))
            shown = shown.expand(*visible.shape[:3], -1)
            visible = torch.cat([shown, visible & (key >= self.global_tokens)], -1)
            keys = torch.cat([first.expand(*keys.shape[:2], -1), keys], -1)
        return queries, keys.minimum(count - 1), visible

    def _softmax(self, q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None) -> Tensor:
        dropout = self.dropout if self.training else 0.0
        return softmax_attention(q, k, v, mask=visible, dropout=dropout)


def _at(order: Tensor, ranks: Tensor) -> Tensor:
    """The positions (B, blocks, size) of the given ranks, from order (B, N)."""
    return order.gather(1, ranks.flatten(1)).view_as(ranks)


def _take(x: Tensor, positions: Tensor) -> Tensor:
    """Rows of x (B, h, N, c) at positions (B or 1, blocks, size): (B * blocks, h, size, c)."""
    batch, heads, length, width = x.shape
    rows = x.transpose(1, 2).reshape(batch * length, heads * width)  # rarely a copy
    samples = torch.arange(0, batch * length, length, device=x.device)
    index = (positions + samples[:, None, None]).flatten()
    taken = rows.index_select(0, index).view(-1, positions.shape[2], heads, width)
    return taken.transpose(1, 2)
