"""What attentions are compared with beside each other, and is no attention of the registry."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor, nn

from ..attention.softmax import SoftmaxAttention
from ..models.options import Place


class Floor(nn.Module):
    """The products that no attention of this family avoids: q and k in one, and the output
    projection; the latter of x itself, so that nothing stands between them.

    The output depends on x alone. For the backward pass to go through q and k too, `take_qk` hands
    out their product (B, N, 2d) of the last forward pass with gradients.
    """

    def __init__(self, width: int, **place: Unpack[Place]) -> None:
        super().__init__()
        self.qk_proj = nn.Linear(width, 2 * width, **place)
        self.out_proj = nn.Linear(width, width, **place)
        self._qk: list[Tensor] = []

    def forward(self, x: Tensor, key_padding_mask: Tensor | None = None) -> tuple[Tensor, None]:
        qk = self.qk_proj(x)
        if torch.is_grad_enabled():
            self._qk = [qk]
        return self.out_proj(x), None

    def take_qk(self) -> Tensor:
        return self._qk.pop()


class MaterialisedSoftmax(SoftmaxAttention):
    """softmax(Q K^T / sqrt(p)) V with the N x N matrix in memory, as in the paper's tables."""

    def forward(  # type: ignore[override]  # it is called for self-attention only
        self, query: Tensor, key_padding_mask: Tensor | None = None
    ) -> tuple[Tensor, None]:
        out, _ = super().forward(
            query,
            key_padding_mask=key_padding_mask,
            need_weights=True,
            average_attn_weights=False,
        )
        return out, None
