"""A kernel that is mostly zero, known by its entries: products only, so that `ksvd` works on it."""

from __future__ import annotations

import torch
from torch import Tensor

from .factors import Kernel


class SparseKernel(Kernel):
    """`K (N, M)` with entries `values (E,)` at `rows (E,)` and `columns (E,)`; entries at one place
    add up. Products cost O(E); only `dense`, and what is asked of all singular values, forms K."""

    def __init__(
        self, rows: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]
    ) -> None:
        sizes = [tuple(part.shape) for part in (rows, columns, values)]
        if rows.dim() != 1 or len(set(sizes)) > 1:
            raise ValueError(
                f"rows, columns and values have shapes {sizes}; expected one number of entries"
            )
        self.shape, self.dtype, self.device = shape, values.dtype, values.device
        for name, places, size in (("rows", rows, shape[0]), ("columns", columns, shape[1])):
            if len(places) and not 0 <= int(places.min()) <= int(places.max()) < size:
                raise ValueError(
                    f"{name} lie between {int(places.min())} and {int(places.max())}; expected 0 "
                    f"to {size - 1}"
                )
        matrix = torch.sparse_coo_tensor(
            torch.stack([rows, columns]), values, shape, check_invariants=False
        )
        self._matrix, self._transposed = matrix.coalesce(), matrix.t().coalesce()

    @property
    def entries(self) -> int:
        """How many places have one."""
        return int(self._matrix.values().numel())

    def held(self) -> tuple[Tensor, ...]:
        return (self._matrix.values(),)

    def dense(self) -> Tensor:
        return self._matrix.to_dense()

    def frobenius_norm(self) -> Tensor:
        norm: Tensor = self._matrix.values().norm()
        return norm

    def _times(self, columns: Tensor) -> Tensor:
        return self._matrix @ columns

    def _transposed_times(self, columns: Tensor) -> Tensor:
        return self._transposed @ columns
