"""YOSO-E: the expected number of hash collisions as attention weight."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..kernels.graphs import is_exporting
from ..theory.precision import widen, without_autocast
from ..theory.transforms import is_transformed
from .base import check_positive
from .cost import Terms
from .inputs import Sequences
from .projected import MixingAttention, hide
from .registry import register

__all__ = ["YosoAttention"]

BLOCK = 2**20  # entries of K that are formed at a time


@register(
    "yoso",
    paper="Zeng et al.: You Only Sample (Almost) Once: Linear Cost Self-Attention Via Bernoulli "
    "Sampling, ICML 2021",
    cost="O(N^2)",
)
class YosoAttention(MixingAttention):
    """YOSO-E, the expectation form of YOSO. Queries and keys are brought to unit length; two of
    them fall into one bucket of tau random hyperplanes with probability

        K_ij = (1 - arccos(<q_i, k_j>) / pi)^tau        o_i = u_i / |u_i|,  u_i = sum_j K_ij v_j

    per head. The rows of K do not add up to one; the output is brought to unit length instead, as
    in the published code. The matrix given with need_weights is K, before that.

    The gradient is that of the formula. The published code replaces the factor
    tau (1 - arccos(x) / pi)^(tau - 1) / (pi sqrt(1 - x^2)) by its bound tau / 2 K_ij from below,
    which sampling needs. Exact expectation costs O(N^2) time; memory is O(N), since K is formed in
    blocks of rows and again in the backward pass.

    Args:
        tau: number of hyperplanes of a hash.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        tau: int = 9,
        bias: bool = True,
        batch_first: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            embed_dim, num_heads, bias=bias, batch_first=batch_first, device=device, dtype=dtype
        )
        check_positive(tau=tau)
        self.tau = tau

    def cost(self, length: int, batch: int = 1) -> Terms:
        flops, kept, working = self._projection_cost(batch * length)
        flops += batch * 4 * length**2 * self.embed_dim
        column = batch * self.num_heads * length
        block = min(column * length, max(BLOCK, 32 * column))
        return Terms(flops, kept + batch * 3 * length * self.embed_dim, working + 4 * block)

    def _mix(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        v = hide(v, ignore)
        with without_autocast(q.device):
            unit_q, unit_k = (F.normalize(widen(rows), dim=-1) for rows in (q, k))
            if _plainly():
                out = _collisions(unit_q, unit_k, widen(v), self.tau)
            else:
                out = _Collisions.apply(unit_q, unit_k, widen(v), self.tau)
        return out

    def _output(self, heads: Tensor, call: Sequences) -> Tensor:
        # heads are in float32 at least: a length, and its inverse, leave the range of float16
        return super()._output(F.normalize(heads, dim=-1).to(self.out_proj.weight.dtype), call)

    def _weights(self, q: Tensor, k: Tensor, call: Sequences) -> Tensor:
        return super()._weights(q, k, call).to(q.dtype)


def _plainly() -> bool:
    """Without blocks: their number would fix the length of an exported graph, and function
    transforms (torch.func) differentiate the plain operations."""
    return is_exporting() or is_transformed()


class _Collisions(torch.autograd.Function):
    """sum_j K_ij v_j of unit q (B, h, N, p), k (B, h, M, p) and of v (B, h, M, c), in blocks."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, tau: int) -> Tensor:
        ctx.save_for_backward(q, k, v)
        ctx.tau = tau
        return torch.cat([_collisions(rows, k, v, tau) for rows in q.split(_block(q, k), 2)], 2)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v = ctx.saved_tensors
        if torch.is_grad_enabled():  # it is to be differentiated itself
            needed = [t for t in (q, k, v) if t.requires_grad]
            out = _collisions(q, k, v, ctx.tau)
            found = iter(torch.autograd.grad(out, needed, grads[0], create_graph=True))
            return *(next(found) if t.requires_grad else None for t in (q, k, v)), None
        grad_q, grad_k, grad_v = [], torch.zeros_like(k), torch.zeros_like(v)
        size = _block(q, k)
        for rows, grad in zip(q.split(size, 2), grads[0].split(size, 2), strict=True):
            cosine = _cosine(rows, k)
            probability = _probability(cosine)
            before = _power(probability, ctx.tau - 1)
            # dK / dcosine = tau before / (pi sqrt(1 - cosine^2)), times the gradient of K
            slope = cosine.square_().neg_().add_(1.0).rsqrt_().mul_(before)
            slope.mul_((grad * (ctx.tau / math.pi)) @ v.mT)
            grad_q.append(slope @ k)
            grad_k += slope.mT @ rows
            grad_v += before.mul_(probability).mT @ grad
        return torch.cat(grad_q, 2), grad_k, grad_v, None


def _collisions(q: Tensor, k: Tensor, v: Tensor, tau: int) -> Tensor:
    return _power(_probability(_cosine(q, k)), tau) @ v


def _cosine(q: Tensor, k: Tensor) -> Tensor:
    """<q_i, k_j>; rounding must not take it to 1 or beyond, where the angle has no derivative."""
    nearly_one = 1.0 - torch.finfo(q.dtype).eps
    return (q @ k.mT).clamp(-nearly_one, nearly_one)


def _probability(cosine: Tensor) -> Tensor:
    """That one random hyperplane does not separate the two."""
    return cosine.acos().mul_(-1.0 / math.pi).add_(1.0)


def _power(base: Tensor, exponent: int) -> Tensor:
    """base ** exponent by repeated squaring: several times faster than torch's power."""
    result = base.clone() if exponent & 1 else torch.ones_like(base)
    while exponent := exponent >> 1:
        base = base * base
        if exponent & 1:
            result.mul_(base)
    return result


def _block(q: Tensor, k: Tensor) -> int:
    """Rows of a block whose matrix stays near the caches."""
    return max(32, BLOCK // max(1, q.shape[0] * q.shape[1] * k.shape[2]))
