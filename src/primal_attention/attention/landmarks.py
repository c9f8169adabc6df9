"""Landmarks: the means of consecutive runs of valid positions."""

from __future__ import annotations

import torch
from torch import Tensor

from ..kernels.graphs import is_exporting


class Landmarks:
    """A division of the n valid positions of each sequence into runs, as equal as can be.

    With m = min(count, n) runs, the first n mod m of them have one position more than the others.
    Positions are counted along the valid ones, so where the ignored ones stand does not matter.
    All sequences of a batch get min(count, N) landmarks; a sequence with fewer valid positions
    leaves the last ones `empty`.
    """

    def __init__(
        self,
        count: int,
        length: int,
        ignore: Tensor | None,
        device: torch.device | None = None,
    ) -> None:
        self.count = count if length > count else length  # min() would stay symbolic in exports
        self.length = length
        self.empty: Tensor | None = None  # (B, m), True where a landmark stands for nothing
        self.single: Tensor | None = None  # (B,), True where each valid position is a landmark
        if ignore is None and not self.all_single and is_exporting():
            # in whole runs the size of a run would be that of one length
            ignore = torch.zeros(1, length, dtype=torch.bool, device=device)
        if ignore is not None:
            self._divide(~ignore)

    @property
    def all_single(self) -> bool:
        """Whether every position is a landmark, in whatever sequence of this length."""
        return self.count == self.length

    def means(self, rows: Tensor) -> Tensor:
        """The landmarks (B, h, m, p) of rows (B, h, N, p); zero where empty."""
        if self.empty is None:
            return self._plain_means(rows)
        heads = rows.shape[1]
        by_position = rows.transpose(1, 2).flatten(2)  # (B, N, h * p)
        sums = self.member.to(rows.dtype) @ by_position
        means = sums / self.sizes.clamp(min=1).unsqueeze(-1).to(sums.dtype)
        landmarks: Tensor = means.unflatten(-1, (heads, rows.shape[3])).transpose(1, 2)
        return landmarks

    def identity_where_empty(self, matrix: Tensor) -> Tensor:
        """matrix (B, h, m, m) with the identity for empty landmarks: nobody sees them, and they
        leave the norms of the rest alone."""
        if self.empty is None:
            return matrix
        empty = self.empty[:, None, :, None]
        one = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
        return torch.where(empty | empty.mT, one, matrix)

    def own_where_single(self, v: Tensor, values: Tensor) -> Tensor:
        """The values (B, h, m, c) of the landmarks, or where each valid position is one, its own of
        v (B, h, N, c): exact, without the error of an iteration."""
        if self.single is None:
            return values
        single = self.single[:, None, None, None]
        return torch.where(single, self.means(v).to(values.dtype), values)

    def _plain_means(self, rows: Tensor) -> Tensor:
        if self.all_single:
            return rows
        size, longer = divmod(self.length, self.count)
        border = longer * (size + 1)
        last: Tensor = rows[:, :, border:].unflatten(2, (self.count - longer, size)).mean(3)
        if longer == 0:
            return last
        first = rows[:, :, :border].unflatten(2, (longer, size + 1)).mean(3)
        return torch.cat([first, last], 2)

    def _divide(self, valid: Tensor) -> None:
        """Who belongs to which landmark: `member` (B, m, N), `sizes` (B, m)."""
        rank = valid.cumsum(-1) - 1  # (B, N), the number among the valid ones
        n = valid.sum(-1, keepdim=True)  # (B, 1)
        m = n.clamp(min=1, max=self.count)
        size = (n // m).clamp(min=1)
        longer = n % m
        border = longer * (size + 1)
        owner = torch.where(
            rank < border, rank // (size + 1), longer + (rank - border) // size
        )  # (B, N)
        each = torch.arange(self.count, device=valid.device)
        self.member = (owner.unsqueeze(1) == each.unsqueeze(-1)) & valid.unsqueeze(1)
        self.sizes = self.member.sum(-1)
        self.empty = self.sizes == 0
        self.single = (n <= self.count).squeeze(-1)
