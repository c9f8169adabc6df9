"""Reformer: softmax over the keys that fall into the same bucket of a random hash."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..theory.precision import widen
from .base import check_positive
from .cost import Terms
from .factored import in_range
from .projected import MixingAttention
from .registry import register

__all__ = ["ReformerAttention"]

BITS = 6  # of a digit of a bucket's number: 64 values, from 32 directions and their opposites
DIGITS = 3  # 2^18 buckets at most
SELF = -1e5  # score of a position with itself: it counts only where nothing else is seen


class Chunks(NamedTuple):
    """Where the positions of (batch, head, round) stand when sorted by bucket, in chunks."""

    position: Tensor  # (B, h, R, slots): who stands in a slot; 0 where nobody does
    taken: Tensor  # (B, h, R, slots): whether one does
    linked: Tensor  # (B, h, R, chunks): whether the chunk continues the bucket of the last one
    slot: Tensor  # (B, h, R, N): where a position stands


@register(
    "reformer",
    paper="Kitaev, Kaiser, Levskaya: Reformer, the Efficient Transformer, ICLR 2020",
    cost="O(N log N)",
)
class ReformerAttention(MixingAttention):
    """Locality-sensitive hashing attention. Queries and keys are one, up to the length of the keys:

        s_ij = <q_i, q_j> / |q_j|                               (k_j = q_j / |q_j|)
        o_i  = sum_r sum_{j in P_r(i)} exp(s_ij - z_i) v_j      z_i = the logarithm of the sum

    over R = hashes rounds. In round r a random rotation H_r sends q_i to the bucket
    argmax([H_r q_i, -H_r q_i]). The positions are sorted by bucket, then by place, and every bucket
    is cut into chunks of bucket_size; P_r(i) are the positions of i's chunk and of the chunk before
    in the same bucket, those up to i where causal. s_ii is lowered by 10^5, as published: a
    position attends to itself only if it sees nobody else. A key met in several rounds counts
    several times. A sequence of at most bucket_size positions is one chunk: dense attention.

    A sequence with n valid positions has 2^b buckets, the largest power of two up to
    n / bucket_size; ignored positions get a bucket of their own. So neither the batch nor padding
    changes anything. The rotations are buffers, saved with the layer; `redraw` draws new ones.

    The published code cuts the sorted sequence into chunks without regard to buckets. Then whom a
    position sees depends on how many later ones have a lower bucket, so a causal layer looks ahead;
    it also draws rotations at every call. More than 64 buckets are numbered by several digits with
    a rotation each, so hashing costs O(N log N).

    Args:
        hashes: R, number of rounds.
        bucket_size: number of positions in a chunk.
        dropout: probability that a weight of a round is dropped in training.
    """

    has_cross = False
    parts = 2  # W_q and W_v
    rotations: Tensor

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        hashes: int = 4,
        bucket_size: int = 32,
        causal: bool = False,
        bias: bool = True,
        dropout: float = 0.0,
        batch_first: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_positive(hashes=hashes, bucket_size=bucket_size)
        super().__init__(
            embed_dim, num_heads, causal=causal, bias=bias, dropout=dropout,
            batch_first=batch_first, device=device, dtype=dtype,
        )  # fmt: skip
        self.hashes, self.bucket_size = int(hashes), int(bucket_size)
        shape = (num_heads, self.head_dim, self.hashes, DIGITS, 2 ** (BITS - 1))
        self.register_buffer("rotations", self.in_proj_weight.new_empty(shape))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Xavier over W_q and W_v together, biases zero, new rotations."""
        super().reset_parameters()
        self.redraw()

    def redraw(self) -> None:
        """New random rotations."""
        nn.init.normal_(self.rotations)

    def cost(self, length: int, batch: int = 1) -> Terms:
        rows, size, bits, d = batch * length, self.bucket_size, self._bits(length), self.embed_dim
        flops = rows * 6 * d**2
        if bits:
            columns = -(-bits // BITS) * 2 ** (min(bits, BITS) - 1)
            flops += rows * 2 * d * self.hashes * columns
        slots = batch * self.hashes * (length // size + 2**bits) * size
        flops += slots * 8 * size * d
        scores = 2 * size * self.num_heads
        return Terms(
            flops, rows * 5 * d + slots * (7 * d + scores), rows * 5 * d + slots * (6 * d + scores)
        )

    def _mix(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        with in_range(q, k, v) as (wide_q, wide_k, wide_v):
            return self._rounds(wide_q, wide_k, wide_v, ignore).to(v.dtype)

    def _rounds(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        batch, heads, length, width = q.shape
        size, rounds = self.bucket_size, (batch, heads, self.hashes)
        chunks = self._chunks(self._buckets(q.detach(), ignore), ignore is not None)
        samples = torch.arange(0, batch * heads * length, length, device=q.device)
        position = chunks.position + samples.view(batch, heads, 1, 1)
        ones = v.new_ones((*v.shape[:3], 1))  # their sum is the denominator
        unit = F.normalize(widen(k), dim=-1).to(k.dtype)
        rows = torch.cat([unit, v, ones], -1)  # one gather for all
        queries = _rows(q, position[..., size:]).unflatten(0, (-1, size))
        keys, values = (
            _rows(rows, position.unfold(-1, 2 * size, size))  # a chunk with the one before
            .unflatten(0, (-1, 2 * size))
            .split([width, v.shape[-1] + 1], -1)
        )
        mixed, peak = self._within_chunks(queries, keys, values, chunks)
        groups = torch.arange(mixed.shape[0], device=q.device)[:: position.shape[-1] - size]
        slot = chunks.slot - size + groups.view(*rounds, 1)  # the first chunk is not among them
        mixed = _rows(mixed, slot).unflatten(0, (*rounds, length))  # (B, h, R, N, c + 1)
        peak = _rows(peak, slot).unflatten(0, (*rounds, length))  # (B, h, R, N, 1)
        share = (peak - peak.amax(2, keepdim=True)).exp()
        mixed, total = (mixed * share).sum(2).split([v.shape[-1], 1], -1)
        out: Tensor = mixed / total
        return out

    def _buckets(self, q: Tensor, ignore: Tensor | None) -> Tensor:
        """The bucket of every position in every round, (B, h, R, N)."""
        batch, heads, length, _ = q.shape
        most = self._bits(length)
        if most == 0:
            buckets = q.new_zeros((batch, heads, self.hashes, length), dtype=torch.long)
        else:
            digits, columns = -(-most // BITS), 2 ** (min(most, BITS) - 1)
            rotations = self.rotations[:, :, :, :digits, :columns].to(q.dtype)
            turned = (q @ rotations.flatten(2)).unflatten(-1, rotations.shape[2:])
            bits = torch.arange(most, -1, -BITS, device=q.device)[:digits]
            if ignore is not None:
                steps = self.bucket_size * 2 ** torch.arange(1, most + 1, device=q.device)
                bits = ((~ignore).sum(1, keepdim=True) >= steps).sum(1, keepdim=True)  # (B, 1)
                bits = bits - BITS * torch.arange(digits, device=q.device)
                bits = bits[:, None, None, None]
            bits = bits.clamp(0, BITS)  # of each digit, (digits,) or (B, 1, 1, 1, digits)
            usable = 2 ** bits.unsqueeze(-1) > 2 * torch.arange(columns, device=q.device)
            best = turned.abs().masked_fill(~usable, -1.0).argmax(-1, keepdim=True)
            digit = (2 * best + (turned.gather(-1, best) < 0)).squeeze(-1) % 2**bits
            place = 2 ** (BITS * torch.arange(digits, device=q.device))
            buckets = (digit * place).sum(-1).movedim(2, -1)
        if ignore is not None:
            buckets = buckets.masked_fill(ignore[:, None, None, :], 2**most)
        return buckets

    def _bits(self, length: int) -> int:
        """The logarithm of the number of buckets."""
        return min(max(length // self.bucket_size, 1).bit_length() - 1, BITS * DIGITS)

    def _chunks(self, buckets: Tensor, padded: bool) -> Chunks:
        """Sort by bucket and cut into chunks; the first chunk stays empty, as the one before."""
        size, length = self.bucket_size, buckets.shape[-1]
        count = 1 + length // size + 2 ** self._bits(length) + padded  # at most
        index = torch.arange(length, device=buckets.device)
        numbers, order = (buckets * length + index).sort(dim=-1)  # ONNX has no stable sort
        ordered = numbers.div(length, rounding_mode="floor")
        members = buckets.new_zeros((*buckets.shape[:3], 2 ** self._bits(length) + padded))
        members = members.scatter_add(-1, ordered, torch.ones_like(ordered))
        begins = (members.cumsum(-1) - members).gather(-1, ordered)
        rank = index - begins  # in the bucket
        slot = (rank % size == 0).cumsum(-1) * size + rank % size
        empty = buckets.new_zeros((*buckets.shape[:3], count * size))
        linked = empty.scatter(-1, slot, (rank >= size).long())[..., ::size]
        return Chunks(
            position=empty.scatter(-1, slot, order),
            taken=empty.scatter(-1, slot, 1).bool(),
            linked=linked.bool(),
            slot=torch.empty_like(slot).scatter(-1, order, slot),
        )

    def _within_chunks(
        self, q: Tensor, k: Tensor, v: Tensor, chunks: Chunks
    ) -> tuple[Tensor, Tensor]:
        """q (chunks, size, p) with k (chunks, 2 size, p) and (v, 1) (chunks, 2 size, c + 1), those
        of the chunk before first. Returns rows of sums of exp(s - peak) (v, 1), and the peaks."""
        scores = q @ k.mT  # (chunks, size, 2 size)
        scores.add_(self._unseen(chunks, scores)).add_(self._own(scores))
        peak = scores.detach().amax(-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).min)
        weights = scores.sub_(peak).exp_()
        mixed = weights @ v
        if self.training and self.dropout:  # of the numerator alone
            dropped = F.dropout(weights, self.dropout) @ v[..., :-1]
            mixed = torch.cat([dropped, mixed[..., -1:]], -1)
        return mixed.flatten(0, 1), peak.flatten(0, 1)

    def _unseen(self, chunks: Chunks, scores: Tensor) -> Tensor:
        """-inf for empty slots and for a chunk before that is of another bucket, else 0."""
        seen = chunks.taken.unflatten(-1, (-1, self.bucket_size))[..., 1:, :]
        linked = chunks.linked[..., 1:, None].expand_as(seen)
        seen = torch.cat([linked, seen], -1).flatten(0, 3).unsqueeze(1)  # (chunks, 1, 2 size)
        return scores.new_zeros(seen.shape).masked_fill_(~seen, -torch.inf)

    def _own(self, scores: Tensor) -> Tensor:
        """What every chunk adds to its scores with (before, itself): (size, 2 size)."""
        size = self.bucket_size
        own = SELF * torch.eye(size, dtype=scores.dtype, device=scores.device)
        if self.causal:
            own = own.masked_fill(torch.ones_like(own, dtype=torch.bool).triu(1), -torch.inf)
        return F.pad(own, (size, 0))


def _rows(x: Tensor, index: Tensor) -> Tensor:
    """Rows of x (..., N, c), counted through all its leading dimensions."""
    return x.reshape(-1, x.shape[-1]).index_select(0, index.flatten())
