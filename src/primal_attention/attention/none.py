"""No attention: every position keeps its own value. The control of a comparison."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from .base import Streaming, check_batch, check_positive
from .cost import Terms
from .inputs import Sequences
from .projected import UndroppedAttention, hide
from .registry import register

__all__ = ["NoneAttention", "NoneState"]


class NoneState(NamedTuple):
    """Nothing is remembered but the number of streams."""

    batch_size: int


@register(
    "none",
    paper="Tay et al.: Long Range Arena, ICLR 2021 (the benchmark that it is a control for)",
    cost="O(N)",
)
class NoneAttention(Streaming, UndroppedAttention):
    """o(x_i) = W_o (W_v x_i + b_v) + b_o: the attention matrix is the identity, in every head. What
    a network reaches with it, it reaches without looking at any other position.

    in_proj_weight (d, d) is W_v alone; there are no queries and keys.

    Args:
        causal: changes nothing but what may be asked of the layer: the causal mask, streams.
    """

    has_cross = False
    parts = 1

    def init_state(self, batch_size: int) -> NoneState:
        """The state of a stream before its first token; causal layers only."""
        self._expect_causal("init_state")
        return NoneState(batch_size)

    def _continue(
        self, call: Sequences, values: Tensor, state: NoneState
    ) -> tuple[Tensor, NoneState]:
        check_batch(state.batch_size, call.x.shape[0])
        return self._attend(call, values), state

    def coverage(self, length: int) -> int:
        """No position influences another one."""
        check_positive(length=length)
        return 0

    def cost(self, length: int, batch: int = 1) -> Terms:
        rows, d = batch * length, self.embed_dim
        return Terms(rows * 4 * d**2, rows * 2 * d, rows * 3 * d)

    def _project(self, call: Sequences, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Values (B, h, N, p), which stand for queries and keys too: nobody looks at those."""
        v = self._heads(self._linear(hide(values, call.ignore), 0, self.embed_dim))
        return v, v, v

    def _mix(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        return v
