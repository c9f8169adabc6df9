"""The state of a causal primal layer between tokens: its size does not depend on the context."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class PrimalState(NamedTuple):
    """sums: (B, d), the sum of the inputs so far (free weights), or (B, 2, h, m, s), the sums
    `phi_q h_e^T` and `phi_k h_r^T` (tied; one more column with a positive feature map).
    seen: (B,), valid positions so far. key_sum: (B, h, m), sum of phi_k, for free weights with a
    positive feature map.
    """

    sums: Tensor
    seen: Tensor
    key_sum: Tensor | None

    def check_batch(self, batch: int) -> None:
        if self.seen.shape[0] != batch:
            raise ValueError(f"the state has batch size {self.seen.shape[0]}; expected {batch}")
