"""Linformer: keys and values projected along the length."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..kernels.dropped_softmax import softmax_attention
from ..kernels.ordering import permute, valid_first
from .base import check_positive
from .cost import Terms
from .inputs import Sequences
from .projected import MixingAttention, silence, sources
from .registry import register

__all__ = ["LinformerAttention"]


@register(
    "linformer",
    paper="Wang et al.: Linformer: Self-Attention with Linear Complexity, 2020",
    cost="O(N k)",
)
class LinformerAttention(MixingAttention):
    """Linformer's attention. Learned matrices E and F (k, max_length) mix the M keys and the M
    values into k each, the same for all heads ("headwise sharing" of the paper); per head

        P = softmax(q (E k)^T / sqrt(p))  (N, k)        o = P (F v)        K = P F  (N, M)

    Identities as E and F, with M = max_length, give softmax attention. E and F act on the inputs
    before W_k and W_v do, which is the same and cheaper.

    The columns of E and F act on valid positions only: the j-th valid position meets column j,
    wherever the ignored ones stand, as if the sequence were alone, and max_length counts valid
    positions. Nothing is rescaled: a shorter sequence sums over fewer columns, as in the published
    code, which multiplies padding by zero.
    E and F start normal with variance 1 / max_length, which keeps the scale of the keys at the full
    length; the paper's 1 / k, meant for a fixed random projection, would make them larger.

    Args:
        max_length: number of columns of E and F: of valid positions that a sequence may have.
        projection: k, number of rows of E and F; None takes min(256, max_length).
        share_kv: E serves the values too, as F.
        dropout: probability that an entry of P is dropped in training.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        max_length: int,
        projection: int | None = None,
        share_kv: bool = False,
        bias: bool = True,
        dropout: float = 0.0,
        batch_first: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            embed_dim, num_heads, bias=bias, dropout=dropout,
            batch_first=batch_first, device=device, dtype=dtype,
        )  # fmt: skip
        check_positive(max_length=max_length)
        projection = min(256, max_length) if projection is None else projection
        check_positive(projection=projection)
        self.max_length, self.projection, self.share_kv = max_length, projection, share_kv
        matrices = torch.empty(
            1 if share_kv else 2, projection, max_length, device=device, dtype=dtype
        )
        self.length_proj = nn.Parameter(matrices)  # E, F
        self._reset_length_proj()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self._reset_length_proj()

    def _reset_length_proj(self) -> None:
        nn.init.normal_(self.length_proj, std=self.max_length**-0.5)

    def cost(self, length: int, batch: int = 1) -> Terms:
        rows, d, k = batch * length, self.embed_dim, self.projection
        flops = rows * (4 * d**2 + 4 * k * d)  # W_q and W_o, softmax
        flops += 2 * k * d * (rows * len(self.length_proj) + batch * 2 * d)  # E and F, W_k and W_v
        return Terms(flops, rows * 3 * d + batch * 6 * k * d, rows * 4 * d + batch * 4 * k * d)

    def _project(self, call: Sequences, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q (B, h, N, p), and E k and F v (B, h, k, p)."""
        length, d = self._columns(call), self.embed_dim
        x, y, z = sources(call, values)
        q = self._linear(x, 0, d)
        valid = None
        if call.ignore is not None:
            order, _ = valid_first(call.ignore)
            compact = permute(y, order)[:, :length]
            z = compact if z is y else permute(z, order)[:, :length]
            y = compact
            valid = (~call.ignore).to(y.dtype).sort(-1, descending=True).values[:, :length]
        both = self.length_proj[:, :, :length]  # (1 or 2, k, M)
        if z is y:
            shorter = _apply(both.flatten(0, 1), y).chunk(len(both), dim=1)  # each (B, k, d)
        else:
            shorter = (_apply(both[0], y), _apply(both[-1], z))
        k = self._linear_of_sums(shorter[0], both[0], valid, d)
        v = self._linear_of_sums(shorter[-1], both[-1], valid, 2 * d)
        return self._heads(q), self._heads(k), self._heads(v)

    def _columns(self, call: Sequences) -> int:
        """How many columns of E and F are in use; no sequence may have more valid positions."""
        length = call.y.shape[1]
        if length <= self.max_length:
            return length
        if call.ignore is not None:  # the rest may be padding
            length = int((~call.ignore).sum(-1).max())
        if length > self.max_length:
            raise ValueError(
                f"key has length {length}; expected at most max_length = {self.max_length}"
            )
        return self.max_length

    def _linear_of_sums(
        self, sums: Tensor, matrix: Tensor, valid: Tensor | None, first: int
    ) -> Tensor:
        """E (y W^T + 1 b^T) from E y: each sum takes the bias as often as its columns add up to."""
        last = first + self.embed_dim
        rows = F.linear(sums, self.in_proj_weight[first:last])
        if self.in_proj_bias is None:
            return rows
        mass = matrix.sum(-1) if valid is None else F.linear(valid, matrix)  # (k,) or (B, k)
        return rows + mass.unsqueeze(-1) * self.in_proj_bias[first:last]

    def _mix(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        return softmax_attention(q, k, v, dropout=self.dropout if self.training else 0.0)

    def _weights(self, q: Tensor, k: Tensor, call: Sequences) -> Tensor:
        """The matrix K = P F (B, h, N, M), before dropout."""
        one = torch.eye(self.projection, dtype=q.dtype, device=q.device)
        attended = softmax_attention(q, k, one.expand(*k.shape[:3], -1))  # (B, h, N, k)
        length = self._columns(call)
        columns = self.length_proj[-1, :, :length].to(attended.dtype)
        if call.ignore is None:
            return attended @ columns
        _, place = valid_first(call.ignore)
        columns = columns[:, place.clamp(max=length - 1)].transpose(0, 1)  # (B, k, M)
        columns = columns.masked_fill(call.ignore.unsqueeze(1), 0.0)
        return silence(attended @ columns.unsqueeze(1), call)


def _apply(matrix: Tensor, rows: Tensor) -> Tensor:
    """matrix (k, M) times each of rows (B, M, d), as one product: (B, k, d)."""
    batch, _, width = rows.shape
    product = matrix @ rows.transpose(0, 1).flatten(1)  # (k, B * d)
    return product.view(len(matrix), batch, width).transpose(0, 1)
