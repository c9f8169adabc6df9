"""What the hand-written passes do to one tile of positions.

`reference.py` states the same mathematics in plain differentiable operations and is the ground
truth of the passes built from these steps (`passes.py`). What makes the difference:

- *Channels first.* Queries and keys are produced as (G, 2h * p, m), straight from the product
  `W x^T`. Every head of every sample is then one block of a uniformly strided batch: no head is
  copied into another layout, and all element-wise work runs along contiguous rows.
- *Norms on the small side.* `phi(q) = q / |q|` is never formed. The scores `W^T q` have only s
  rows per head and are divided by `|q|` instead; in the backward pass,
  `dq = W du - (<ds, s> / |q|^2) q` with `du = ds / |q|`.
- *Tiles.* Temporaries are as long as a tile and reused, so they stay in the cache; without a
  gradient nothing of length N is kept besides the output.
- *The objective for free.* The sums of squared scores, all that `J` needs of the sequence, are
  taken while the scores are in the cache.

A layer has 2h *sides*: the h query sides (scores e), then the h key sides (scores r). A tile is
seen as G groups of m positions: a group per sample, or one group where all samples share weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from ..theory.features import SMALLEST_NORM
from .random_bits import draw_mask, is_eager_cpu, keep_scale

TILE = 2**20  # numbers (4 MiB in float32) that the features and scores of a tile may take
SHORT = 128  # positions per group below which all groups are copied into one matrix


class Tile(NamedTuple):
    """Whole samples `first:last`, or the positions `start:stop` of one sample: contiguous rows."""

    first: int
    last: int
    start: int
    stop: int

    @property
    def samples(self) -> int:
        return self.last - self.first

    @property
    def positions(self) -> int:
        return self.samples * (self.stop - self.start)

    def of(self, x: Tensor) -> Tensor:
        """The tile of a (B, N, ...) tensor, a view."""
        return x[self.first : self.last, self.start : self.stop]


def cut(x: Tensor, channels: int) -> Iterator[Tile]:
    """Tiles that cover x (B, N, d) where every position needs `channels` numbers.

    One tile off the CPU (few large launches) and in half precision (sums over tiles would be
    rounded too often).
    """
    batch, length = x.shape[:2]
    most = max(TILE // channels, 1)
    if batch == 0:
        return
    if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.float64):
        yield Tile(0, batch, 0, length)
    elif length <= most:
        step = most // length
        for first in range(0, batch, step):
            yield Tile(first, min(first + step, batch), 0, length)
    else:
        step = -(-length // -(-length // most))  # equal tiles, none longer than `most`
        for sample in range(batch):
            for start in range(0, length, step):
                yield Tile(sample, sample + 1, start, min(start + step, length))


class Buffer(NamedTuple):
    """Flat memory with `channels` numbers for every position of sequences of some length or, when
    length is None, for the positions of one tile at a time."""

    data: Tensor
    channels: int
    length: int | None

    def at(self, tile: Tile, groups: int) -> Tensor:
        """The contiguous block (G, channels, m) of a tile."""
        begin = 0 if self.length is None else tile.first * self.length + tile.start
        block = self.data[begin * self.channels : (begin + tile.positions) * self.channels]
        return block.view(groups, self.channels, -1)


class TiledPass:
    """One pass over x (B, N, d), in tiles, with the weights of one layer.

    ignore: (B, N) bool or None; True positions take no part and give zero rows.
    w_in (2d, d), b_in (2d) or None: queries and keys. w_out (d, 2h * s): the concatenation weight
    W_c folded into the output projection. `buffers` are those of the forward pass, in the backward.
    Projections are kept transposed, (B or 1, 2h, s, p): the products run up to a third faster so.
    """

    def __init__(
        self,
        x: Tensor,
        ignore: Tensor | None,
        w_in: Tensor,
        b_in: Tensor | None,
        w_out: Tensor,
        *,
        sides: int,
        shared: bool,
        dropout: float = 0.0,
        keep_all: bool = True,
        keep_scores: bool = True,
        buffers: Sequence[Tensor | None] = (None, None, None, None),
    ) -> None:
        self.x, self.b_in, self.w_out = x, b_in, w_out
        self.w_in = w_in.t().contiguous().t()  # the products prefer it column by column
        self.ignore = None if ignore is None else ignore.contiguous()
        self.sides, self.shared, self.dropout = sides, shared, dropout
        self.head_dim, self.rank = w_in.shape[0] // sides, w_out.shape[1] // sides
        self.wide = x.dtype if x.dtype == torch.float64 else torch.float32
        width, n_scores = w_in.shape[0], w_out.shape[1]
        self.tiles = list(cut(x, width + n_scores))
        self.keep_scores = keep_scores
        self.qk = self.buffer(width, whole=keep_all, data=buffers[0])
        self.inverse = self.buffer(sides, whole=keep_all, dtype=self.wide, data=buffers[1])
        self.scores = self.buffer(n_scores, whole=keep_all and keep_scores, data=buffers[2])
        self.keep = None
        if dropout:
            self.keep = self.buffer(n_scores, whole=keep_all, dtype=torch.uint8, data=buffers[3])
            self.keep_scale = keep_scale(dropout) if is_eager_cpu(x) else 1 / (1 - dropout)
        self.work = self.buffer(width, dtype=self.wide)
        if buffers[0] is not None:  # the backward pass
            self.product = self.buffer(n_scores) if x.dtype == self.wide else None

    def buffer(
        self,
        channels: int,
        *,
        whole: bool = False,
        dtype: torch.dtype | None = None,
        data: Tensor | None = None,
    ) -> Buffer:
        """Memory for the whole pass or for one tile."""
        batch, length = self.x.shape[:2]
        if data is None:
            count = batch * length if whole else max((t.positions for t in self.tiles), default=0)
            data = self.x.new_empty(count * channels, dtype=dtype)
        return Buffer(data, channels, length if whole or len(self.tiles) == 1 else None)

    @property
    def buffers(self) -> tuple[Tensor | None, ...]:
        """What the backward pass needs."""
        scores = self.scores.data if self.keep_scores else None
        keep = None if self.keep is None else self.keep.data
        return self.qk.data, self.inverse.data, scores, keep

    # -- views of a tile -------------------------------------------------------------------------

    def groups(self, tile: Tile) -> int:
        return 1 if self.shared else tile.samples

    def rows(self, tensor: Tensor, tile: Tile) -> Tensor:
        """A tile of a (B, N, c) tensor as (G, m, c)."""
        return tile.of(tensor).view(self.groups(tile), -1, tensor.shape[-1])

    def hidden(self, tile: Tile) -> Tensor | None:
        """The ignored positions of a tile, (G, m, 1)."""
        return None if self.ignore is None else self.rows(self.ignore.unsqueeze(-1), tile)

    def visible_rows(self, tensor: Tensor, tile: Tile) -> Tensor:
        """Rows with ignored positions zeroed: what is there, NaN included, must not spread."""
        rows, hidden = self.rows(tensor, tile), self.hidden(tile)
        return rows if hidden is None else rows.masked_fill(hidden, 0.0)

    def hide(self, tile: Tile, rows: Tensor) -> None:
        hidden = self.hidden(tile)
        if hidden is not None:
            rows.masked_fill_(hidden, 0.0)

    def weights(self, w: Tensor, tile: Tile) -> Tensor:
        """The projections that serve a tile, of (B or 1, 2h, s, p), as (G * 2h, s, p)."""
        part = w if self.shared else w[tile.first : tile.last]
        return part.view(-1, self.rank, self.head_dim)

    def by_side(self, block: Tensor) -> Tensor:
        """(G, 2h * c, m) -> (G, 2h, c, m)."""
        return block.view(block.shape[0], self.sides, -1, block.shape[-1])

    def as_batch(self, block: Tensor) -> Tensor:
        """(G, 2h * c, m) -> (G * 2h, c, m): one batch of matrices."""
        return block.view(block.shape[0] * self.sides, -1, block.shape[-1])

    def by_sample(self, scores: Tensor, tile: Tile) -> Tensor:
        """(G, 2h * s, m) -> (G, 2h, s, samples in a group, positions of a sample)."""
        samples = tile.samples if self.shared else 1
        return scores.view(scores.shape[0], self.sides, self.rank, samples, -1)

    # -- forward ---------------------------------------------------------------------------------

    def sweep(
        self, weights: Tensor, b_out: Tensor, want_energy: bool, *, have_features: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Output (B, N, d) and sums of squared scores (B, 2h, s) for fixed projections."""
        out = torch.empty_like(self.x)
        shape = (len(self.x), self.sides, self.rank)
        energy = self.x.new_zeros(shape, dtype=self.wide) if want_energy else None
        for tile in self.tiles:
            if not have_features:
                self.features(tile, self.visible_rows(self.x, tile))
            scores = self.emit(tile, weights, b_out, out)
            if energy is not None:
                norm = torch.linalg.vector_norm(
                    self.by_sample(scores, tile), dim=-1, dtype=self.wide
                )
                norm = norm.permute(0, 3, 1, 2).reshape(-1, self.sides, self.rank)
                energy[tile.first : tile.last].addcmul_(norm, norm)
        return out, energy

    def features(self, tile: Tile, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys q, k (equation 1) and 1 / |q|, 1 / |k|; the latter 0 where ignored."""
        groups = self.groups(tile)
        qk, inverse = self.qk.at(tile, groups), self.inverse.at(tile, groups)
        project(self.w_in, self.b_in, rows, out=qk)
        blocks = self.by_side(qk)
        if blocks.dtype != self.wide:  # in half precision squares would overflow
            blocks = blocks.to(self.wide)
        square = self.by_side(self.work.at(tile, groups))
        torch.sum(torch.mul(blocks, blocks, out=square), dim=2, out=inverse)
        # A zero row becomes an infinite norm. So does NaN, which the scores still carry.
        functional.threshold(inverse, SMALLEST_NORM**2, torch.inf, inplace=True).rsqrt_()
        hidden = self.hidden(tile)
        if hidden is not None:
            inverse.masked_fill_(hidden.transpose(1, 2), 0.0)
        return qk, inverse

    def score(self, tile: Tile, weights: Tensor) -> Tensor:
        """The scores `(W^T q) / |q|` (equation 9) of a tile whose features are there."""
        groups = self.groups(tile)
        qk, inverse = self.qk.at(tile, groups), self.inverse.at(tile, groups)
        scores = self.scores.at(tile, groups)
        torch.bmm(self.weights(weights, tile), self.as_batch(qk), out=self.as_batch(scores))
        self.by_side(scores).mul_(inverse.unsqueeze(2))
        return scores

    def emit(self, tile: Tile, weights: Tensor, b_out: Tensor, out: Tensor) -> Tensor:
        """Write the output rows of a tile; returns its scores."""
        scores = used = self.score(tile, weights)
        if self.keep is not None:
            keep = self.keep.at(tile, self.groups(tile))
            if is_eager_cpu(keep):
                keep.copy_(draw_mask(keep.numel(), self.dropout).view_as(keep))
            else:
                keep.bernoulli_(1.0 - self.dropout)
            used = (scores * keep).mul_(self.keep_scale)
        rows = self.rows(out, tile)
        rows_of(used, self.w_out.t(), rows, bias=b_out)
        self.hide(tile, rows)
        return scores

    # -- backward --------------------------------------------------------------------------------

    def emit_backward(
        self,
        tile: Tile,
        g: Tensor,
        g_energy: Tensor | None,
        d_scores: Tensor,
        d_weights: Tensor,
        d_w_out: Tensor,
    ) -> Tensor:
        """From the rows g (G, m, d) of the output's gradient: write `du = ds / |q|` into d_scores,
        add to the gradients of the weights (d_w_out is (2h * s, d)), and return `<ds, s>`
        (G, 2h, m)."""
        groups = self.groups(tile)
        qk, inverse = self.qk.at(tile, groups), self.inverse.at(tile, groups)
        scores = self.scores.at(tile, groups)
        project(self.w_out.t(), None, g, out=d_scores)
        if self.keep is None:
            add_outer(scores, g, d_w_out)
        else:
            keep = self.keep.at(tile, groups)
            add_outer((scores * keep).mul_(self.keep_scale), g, d_w_out)
            d_scores.mul_(keep).mul_(self.keep_scale)
        if g_energy is not None:  # energy is a sum of squares: its gradient is 2 s g
            factor = g_energy[tile.first : tile.last].view(groups, -1, self.sides, self.rank)
            factor = factor.permute(0, 2, 3, 1).unsqueeze(-1).to(scores.dtype)
            target = self.by_sample(d_scores, tile)
            target.addcmul_(self.by_sample(scores, tile), factor, value=2)
        dot = self.dot(tile, d_scores, scores)
        self.by_side(d_scores).mul_(inverse.unsqueeze(2))
        sides = self.as_batch(qk).transpose(1, 2)
        self.weights(d_weights, tile).baddbmm_(self.as_batch(d_scores), sides)
        return dot

    def dot(self, tile: Tile, a: Tensor, b: Tensor) -> Tensor:
        """Inner products over the s directions of two (G, 2h * s, m) blocks: (G, 2h, m)."""
        if self.product is None:
            return self.by_side(a * b).sum(2, dtype=self.wide)
        product = self.product.at(tile, self.groups(tile))
        return self.by_side(torch.mul(a, b, out=product)).sum(2)

    def along_features(self, tile: Tile, dot: Tensor) -> Tensor:
        """`-(dot / |q|^2) q`, the part of dq that comes from the norm (G, 2h * p, m)."""
        groups = self.groups(tile)
        qk, inverse = self.qk.at(tile, groups), self.inverse.at(tile, groups)
        factor = dot.mul_(inverse).mul_(inverse).neg_().to(qk.dtype).unsqueeze(2)
        if self.work.data.dtype != qk.dtype:
            return (self.by_side(qk) * factor).view_as(qk)
        d_qk = self.work.at(tile, groups)
        torch.mul(self.by_side(qk), factor, out=self.by_side(d_qk))
        return d_qk


# -- products of one matrix with all groups of a tile ----------------------------------------------
#
# A tile comes as rows (G, m, d) or as a channels-first block (G, c, m). One group is one product.
# Groups of short sequences would each be a small product that reads the matrix again; they are laid
# out as rows of all groups, at the price of a copy, and are then one large product.


def project(matrix: Tensor, bias: Tensor | None, rows: Tensor, out: Tensor) -> None:
    """out (G, c, m) = matrix (c, d) rows^T + bias, for rows (G, m, d)."""
    if _short(rows, rows.shape[1]):
        flat = rows.reshape(-1, rows.shape[-1])
        made = flat @ matrix.t() if bias is None else torch.addmm(bias, flat, matrix.t())
        out.copy_(made.view(*rows.shape[:2], -1).transpose(1, 2))
        return
    if len(out) == 1:  # up to a third faster than a batch of one
        torch.mm(matrix, rows[0].t(), out=out[0])
    else:
        torch.bmm(matrix.expand(len(out), -1, -1), rows.transpose(1, 2), out=out)
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
    else:
        blocks, matrices = block.transpose(1, 2), matrix.expand(len(block), -1, -1)
        if add:
            out.baddbmm_(blocks, matrices)
        elif bias is None:
            torch.bmm(blocks, matrices, out=out)
        else:
            torch.baddbmm(bias, blocks, matrices, out=out)
        return
    if add:
        target.addmm_(flat, matrix)
    elif bias is None:
        torch.mm(flat, matrix, out=target)
    else:
        torch.addmm(bias, flat, matrix, out=target)


def add_outer(block: Tensor, rows: Tensor, total: Tensor) -> None:
    """total (c, d) += the sum over groups of block (G, c, m) rows (G, m, d)."""
    # addbmm adds group by group: it rounds in half precision, and launches elsewhere, for each
    by_group = block.device.type == "cpu" and block.dtype in (torch.float32, torch.float64)
    if len(block) > 1 and (not by_group or block.shape[2] < SHORT):
        total.addmm_(_as_rows(block).t(), rows.reshape(-1, rows.shape[-1]))
    else:
        total.addbmm_(block, rows)


def add_column_sums(rows: Tensor, total: Tensor) -> None:
    """total (d) += the sum of rows (G, m, d); a product with ones is faster than a reduction."""
    flat = rows.reshape(-1, rows.shape[-1])
    total.addmv_(flat.t(), flat.new_ones(len(flat)))


def _short(block: Tensor, positions: int) -> bool:
    return len(block) > 1 and positions < SHORT


def _as_rows(block: Tensor) -> Tensor:
    """(G, c, m) -> (G * m, c), a copy."""
    return block.transpose(1, 2).reshape(-1, block.shape[1])
