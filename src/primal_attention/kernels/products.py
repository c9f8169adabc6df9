"""Products of one matrix with all groups of a piece, in the form that is fastest for its sizes.

A piece comes as rows (G, m, d) or as a channels-first block (G, c, m). One group is one product.
Groups of short sequences would each be a small product that reads the matrix again; they are laid
out as rows of all groups, at the price of a copy, and are then one large product.
"""

from __future__ import annotations

import torch
from torch import Tensor

SHORT = 128  # positions a group below which the copy pays


def _short(block: Tensor, positions: int) -> bool:
    return len(block) > 1 and positions < SHORT


def project(matrix: Tensor, bias: Tensor | None, rows: Tensor, out: Tensor) -> None:
    """out (G, c, m) = matrix (c, d) rows^T + bias, for rows (G, m, d)."""
    if _short(rows, rows.shape[1]):
        flat = rows.reshape(-1, rows.shape[-1])
        made = flat @ matrix.t() if bias is None else torch.addmm(bias, flat, matrix.t())
        out.copy_(made.view(*rows.shape[:2], -1).transpose(1, 2))
        return
    _product(matrix, rows.transpose(1, 2), out)
    if bias is not None:  # not baddbmm: it would first copy the bias along rows, element by element
        out.add_(bias.view(1, -1, 1))


def rows_of(
    block: Tensor, matrix: Tensor, out: Tensor, *, bias: Tensor | None = None, add: bool = False
) -> None:
    """out (G, m, d) = block^T matrix + bias, for block (G, c, m) and matrix (c, d); `add` adds."""
    if _short(block, block.shape[2]):
        flat, target = _as_rows(block), out.view(-1, out.shape[-1])
    elif len(block) == 1:
        flat, target = block[0].t(), out[0]
    elif add:
        out.baddbmm_(block.transpose(1, 2), matrix.expand(len(block), -1, -1))
        return
    else:
        _product(block.transpose(1, 2), matrix, out, bias)
        return
    if add:
        target.addmm_(flat, matrix)
    elif bias is None:
        torch.mm(flat, matrix, out=target)
    else:
        torch.addmm(bias, flat, matrix, out=target)


def add_outer(block: Tensor, rows: Tensor, total: Tensor) -> None:
    """total (c, d) += the sum over groups of block (G, c, m) rows (G, m, d)."""
    if _short(block, block.shape[2]):
        total.addmm_(_as_rows(block).t(), rows.reshape(-1, rows.shape[-1]))
    else:
        total.addbmm_(block, rows)


def add_column_sums(rows: Tensor, total: Tensor) -> None:
    """total (d) += the sum of rows (G, m, d); a product with ones is faster than a reduction."""
    flat = rows.reshape(-1, rows.shape[-1])
    total.addmv_(flat.t(), flat.new_ones(len(flat)))


def _as_rows(block: Tensor) -> Tensor:
    """(G, c, m) -> (G * m, c), a copy."""
    return block.transpose(1, 2).reshape(-1, block.shape[1])


def _product(a: Tensor, b: Tensor, out: Tensor, bias: Tensor | None = None) -> None:
    """out (G, i, j) = a b + bias, where a or b may be one matrix for all groups.

    For a single group by mm, which is up to a third faster than a batch of one.
    """
    a, b = (t if t.dim() == 3 else t.expand(len(out), -1, -1) for t in (a, b))
    if len(out) != 1:
        torch.bmm(a, b, out=out) if bias is None else torch.baddbmm(bias, a, b, out=out)
    elif bias is None:
        torch.mm(a[0], b[0], out=out[0])
    else:
        torch.addmm(bias, a[0], b[0], out=out[0])
