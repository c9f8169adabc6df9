"""The steps of the hand-written forward and backward passes, one piece of positions at a time.

`plain.py` states the same mathematics in ordinary differentiable operations and is the truth that
the two functions built from these steps (`given.py`, `tied.py`) are tested against. What makes the
difference:

- *Channels first.* Queries and keys are produced as (G, 2h * p, m), straight from the product
  `W x^T`. Every head of every sample is then one block of a uniformly strided batch: no head is
  copied into another layout, and all element-wise work runs along contiguous rows.
- *Norms on the small side.* `phi(q) = q / |q|` is never formed. The scores `W^T q` have only s
  rows per head and are divided by `|q|` instead; going back,
  `dq = W du - (<ds, s> / |q|^2) q` with `du = ds / |q|`.
- *Pieces.* Temporaries are as long as a piece and reused, so they stay in the cache; when no
  gradient is wanted, nothing of length N is kept besides the output.
- *The objective for free.* The sums of squared scores, all that `J` needs of the sequence, are
  taken while the scores are in the cache.

A layer has 2h *sides*: the h query sides (scores e), then the h key sides (scores r). A piece is
seen as G groups of m positions: a group a sample, or one group where all samples share weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from ..theory.features import SMALLEST_NORM
from .products import add_outer, project, rows_of
from .random_bits import draw_mask, is_eager_cpu, keep_scale
from .tiles import Piece, Store, pieces


class Steps:
    """One pass over x (B, N, d) with the weights of one layer.

    ignore: (B, N) bool or None; True positions take no part and give zero rows.
    w_in (2d, d), b_in (2d) or None: queries and keys. w_out (d, 2h * s): the concatenation weight
    W_c folded into the output projection. `buffers` are those of an earlier pass, for going back.
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
        self.pieces = list(pieces(x, width + n_scores))
        self.keep_scores = keep_scores
        self.qk = self.store(width, whole=keep_all, data=buffers[0])
        self.inverse = self.store(sides, whole=keep_all, dtype=self.wide, data=buffers[1])
        self.scores = self.store(n_scores, whole=keep_all and keep_scores, data=buffers[2])
        self.keep = None
        if dropout:
            self.keep = self.store(n_scores, whole=keep_all, dtype=torch.uint8, data=buffers[3])
            self.keep_scale = keep_scale(dropout) if is_eager_cpu(x) else 1 / (1 - dropout)
        self.work = self.store(width, dtype=self.wide)
        if buffers[0] is not None:  # going back
            self.product = self.store(n_scores) if x.dtype == self.wide else None

    def store(
        self,
        channels: int,
        *,
        whole: bool = False,
        dtype: torch.dtype | None = None,
        data: Tensor | None = None,
    ) -> Store:
        """A buffer for the whole pass or for one piece."""
        batch, length = self.x.shape[:2]
        if data is None:
            count = batch * length if whole else max((p.positions for p in self.pieces), default=0)
            data = self.x.new_empty(count * channels, dtype=dtype)
        return Store(data, channels, length if whole or len(self.pieces) == 1 else None)

    @property
    def buffers(self) -> tuple[Tensor | None, ...]:
        scores = self.scores.data if self.keep_scores else None
        keep = None if self.keep is None else self.keep.data
        return self.qk.data, self.inverse.data, scores, keep

    # -- views of a piece ------------------------------------------------------------------------

    def groups(self, piece: Piece) -> int:
        return 1 if self.shared else piece.samples

    def rows(self, tensor: Tensor, piece: Piece) -> Tensor:
        """A piece of a (B, N, c) tensor as (G, m, c)."""
        return piece.of(tensor).view(self.groups(piece), -1, tensor.shape[-1])

    def hidden(self, piece: Piece) -> Tensor | None:
        """The ignored positions of a piece, (G, m, 1)."""
        return None if self.ignore is None else self.rows(self.ignore.unsqueeze(-1), piece)

    def visible_rows(self, tensor: Tensor, piece: Piece) -> Tensor:
        """Rows with ignored positions zeroed: what stands there, NaN included, must not spread."""
        rows, hidden = self.rows(tensor, piece), self.hidden(piece)
        return rows if hidden is None else rows.masked_fill(hidden, 0.0)

    def weights(self, w: Tensor, piece: Piece) -> Tensor:
        """The projections that serve a piece, of (B or 1, 2h, s, p), as (G * 2h, s, p)."""
        part = w if self.shared else w[piece.first : piece.last]
        return part.view(-1, self.rank, self.head_dim)

    def by_side(self, block: Tensor) -> Tensor:
        """(G, 2h * c, m) -> (G, 2h, c, m)."""
        return block.view(block.shape[0], self.sides, -1, block.shape[-1])

    def as_batch(self, block: Tensor) -> Tensor:
        """(G, 2h * c, m) -> (G * 2h, c, m): one batch of matrices."""
        return block.view(block.shape[0] * self.sides, -1, block.shape[-1])

    def by_sample(self, scores: Tensor, piece: Piece) -> Tensor:
        """(G, 2h * s, m) -> (G, 2h, s, samples in a group, positions of a sample)."""
        samples = piece.samples if self.shared else 1
        return scores.view(scores.shape[0], self.sides, self.rank, samples, -1)

    # -- forward ---------------------------------------------------------------------------------

    def sweep(
        self,
        weights: Tensor,
        b_out: Tensor,
        want_energy: bool,
        *,
        have_features: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Output (B, N, d) and sums of squared scores (B, 2h, s) for given projections."""
        out = torch.empty_like(self.x)
        shape = (len(self.x), self.sides, self.rank)
        energy = self.x.new_zeros(shape, dtype=self.wide) if want_energy else None
        for piece in self.pieces:
            if not have_features:
                self.features(piece, self.visible_rows(self.x, piece))
            scores = self.emit(piece, weights, b_out, out)
            if energy is not None:
                self.add_energy(piece, scores, energy)
        return out, energy

    def features(self, piece: Piece, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys q, k (equation 1) and 1 / |q|, 1 / |k|; the latter 0 where ignored."""
        qk = self.qk.at(piece, self.groups(piece))
        project(self.w_in, self.b_in, rows, out=qk)
        inverse = self.inverse.at(piece, self.groups(piece))
        blocks = self.by_side(qk)
        if blocks.dtype != self.wide:  # in half precision squares would overflow
            blocks = blocks.to(self.wide)
        square = self.by_side(self.work.at(piece, self.groups(piece)))
        torch.sum(torch.mul(blocks, blocks, out=square), dim=2, out=inverse)
        # A zero row becomes an infinite norm. So does NaN, which the scores still carry.
        functional.threshold(inverse, SMALLEST_NORM**2, torch.inf, inplace=True).rsqrt_()
        hidden = self.hidden(piece)
        if hidden is not None:
            inverse.masked_fill_(hidden.transpose(1, 2), 0.0)
        return qk, inverse

    def score(self, piece: Piece, weights: Tensor) -> Tensor:
        """The scores `(W^T q) / |q|` (equation 9) of a piece whose features are there."""
        groups = self.groups(piece)
        qk, inverse = self.qk.at(piece, groups), self.inverse.at(piece, groups)
        scores = self.scores.at(piece, groups)
        torch.bmm(self.weights(weights, piece), self.as_batch(qk), out=self.as_batch(scores))
        self.by_side(scores).mul_(inverse.unsqueeze(2))
        return scores

    def emit(self, piece: Piece, weights: Tensor, b_out: Tensor, out: Tensor) -> Tensor:
        """Scores and the output rows; returns the scores."""
        groups = self.groups(piece)
        scores = used = self.score(piece, weights)
        if self.keep is not None:
            keep = self.keep.at(piece, groups)
            if is_eager_cpu(keep):
                keep.copy_(draw_mask(keep.numel(), self.dropout).view_as(keep))
            else:
                keep.bernoulli_(1.0 - self.dropout)
            used = (scores * keep).mul_(self.keep_scale)
        rows = self.rows(out, piece)
        rows_of(used, self.w_out.t(), rows, bias=b_out)
        self.hide(piece, rows)
        return scores

    def add_energy(self, piece: Piece, scores: Tensor, energy: Tensor) -> None:
        """Add the sums of squared scores over a piece to energy (B, 2h, s)."""
        norm = torch.linalg.vector_norm(self.by_sample(scores, piece), dim=-1, dtype=energy.dtype)
        norm = norm.permute(0, 3, 1, 2).reshape(-1, self.sides, self.rank)
        energy[piece.first : piece.last].addcmul_(norm, norm)

    # -- backward --------------------------------------------------------------------------------

    def emit_backward(
        self,
        piece: Piece,
        g: Tensor,
        g_energy: Tensor | None,
        d_scores: Tensor,
        d_weights: Tensor,
        d_w_out: Tensor,
    ) -> Tensor:
        """From the rows g (G, m, d) of the output's gradient: write `du = ds / |q|` into d_scores,
        add to the gradients of the weights (d_w_out is (2h * s, d)), and return `<ds, s>`
        (G, 2h, m)."""
        groups = self.groups(piece)
        qk, inverse = self.qk.at(piece, groups), self.inverse.at(piece, groups)
        scores = self.scores.at(piece, groups)
        project(self.w_out.t(), None, g, out=d_scores)
        if self.keep is None:
            add_outer(scores, g, d_w_out)
        else:
            keep = self.keep.at(piece, groups)
            add_outer((scores * keep).mul_(self.keep_scale), g, d_w_out)
            d_scores.mul_(keep).mul_(self.keep_scale)
        if g_energy is not None:  # energy is a sum of squares: its gradient is 2 s g
            factor = g_energy[piece.first : piece.last].view(groups, -1, self.sides, self.rank)
            factor = factor.permute(0, 2, 3, 1).unsqueeze(-1).to(scores.dtype)
            target = self.by_sample(d_scores, piece)
            target.addcmul_(self.by_sample(scores, piece), factor, value=2)
        dot = self.dot(piece, d_scores, scores)
        self.by_side(d_scores).mul_(inverse.unsqueeze(2))
        sides = self.as_batch(qk).transpose(1, 2)
        self.weights(d_weights, piece).baddbmm_(self.as_batch(d_scores), sides)
        return dot

    def dot(self, piece: Piece, a: Tensor, b: Tensor) -> Tensor:
        """Inner products over the s directions of two (G, 2h * s, m) blocks: (G, 2h, m)."""
        if self.product is None:
            return self.by_side(a * b).sum(2, dtype=self.wide)
        product = self.product.at(piece, self.groups(piece))
        return self.by_side(torch.mul(a, b, out=product)).sum(2)

    def along_features(self, piece: Piece, dot: Tensor) -> Tensor:
        """`-(dot / |q|^2) q`, the part of dq that comes from the norm (G, 2h * p, m)."""
        groups = self.groups(piece)
        qk, inverse = self.qk.at(piece, groups), self.inverse.at(piece, groups)
        factor = dot.mul_(inverse).mul_(inverse).neg_().to(qk.dtype).unsqueeze(2)
        if self.work.data.dtype != qk.dtype:
            return (self.by_side(qk) * factor).view_as(qk)
        d_qk = self.work.at(piece, groups)
        torch.mul(self.by_side(qk), factor, out=self.by_side(d_qk))
        return d_qk

    def rows_backward(self, piece: Piece, d_qk: Tensor, dx: Tensor) -> Tensor:
        """Write the input rows' gradient `dq^T w_in`; ignored positions get zero."""
        rows = self.rows(dx, piece)
        rows_of(d_qk, self.w_in, rows)
        return rows

    def hide(self, piece: Piece, rows: Tensor) -> None:
        hidden = self.hidden(piece)
        if hidden is not None:
            rows.masked_fill_(hidden, 0.0)


def refuse_second_derivative() -> None:
    """A backward pass under create_graph would return constants: wrong without a word."""
    if torch.is_grad_enabled():
        raise RuntimeError(
            "the hand-written backward pass of Primal-Attention has no derivative itself "
            "(create_graph=True was asked for); set layer.fast = False for second derivatives"
        )
