"""A sequence that is split over workers: what they must tell each other, and nothing more.

Every worker holds consecutive positions of the same samples, worker 0 the first ones. What crosses
is independent of the length: the anchor rows, the sums of tied weights or those of the workers
before in causal layers, and the numbers of J.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

_current: ContextVar[Shards | None] = ContextVar("shards", default=None)


class Shards:
    """The workers that hold the parts of a sequence. `numbers` counts what this one has sent, in
    forward and backward passes."""

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        if not dist.is_initialized():
            raise RuntimeError(
                "torch.distributed has no process group; expected init_process_group before"
            )
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        if self.rank < 0:
            raise ValueError("this process is not in the group; expected a member")
        self.numbers = 0

    def total(self, part: Tensor) -> Tensor:
        """The sum over the workers, differentiable: each gets the gradients of all."""
        summed: Tensor = _Total.apply(part, self)
        return summed

    def before(self, part: Tensor) -> Tensor:
        """The sum over the workers before this one, differentiable."""
        summed: Tensor = _Before.apply(part, self)
        return summed

    def once(self, part: Tensor) -> Tensor:
        """The sum over the workers of a term of a loss that all of them compute alike. The workers'
        gradients together are then those of one such loss."""
        summed: Tensor = _Once.apply(part, self)
        return summed

    def shared(self, whole: Tensor) -> Tensor:
        """A term of such a loss that every worker has as a whole: one share of its gradient."""
        same: Tensor = _Share.apply(whole, self.size)
        return same

    def sum_(self, tensor: Tensor) -> Tensor:
        """The sum over the workers, in place."""
        self.numbers += tensor.numel()
        dist.all_reduce(tensor, group=self.group)
        return tensor

    def gather(self, tensor: Tensor) -> Tensor:
        """The tensors of all workers, (workers, ...)."""
        self.numbers += tensor.numel()
        parts = [torch.empty_like(tensor) for _ in range(self.size)]
        dist.all_gather(parts, tensor.contiguous(), group=self.group)
        return torch.stack(parts)


def current_shards() -> Shards | None:
    """The workers between whom the sequences of a call are split; None if they are whole."""
    return None if torch.compiler.is_compiling() else _current.get()


@contextmanager
def shard_sequence(group: dist.ProcessGroup | None = None) -> Iterator[Shards]:
    """While in it, a primal layer takes its input as this worker's part of longer sequences.

        with pa.distributed.shard_sequence() as shards:
            out, _ = layer(part, key_padding_mask=part_of_the_mask)       # (B, N_part, d)

    The output is this worker's part of what one process would compute, to rounding; so is J, and
    the gradients, once they are summed over the workers (`sum_gradients`), are those of the sum of
    the workers' task losses and of one KSVD loss. Every worker of the group must make the same
    calls; the parts may differ in length. Self-attention only. Other layers of a model are left
    alone: position-wise ones need nothing, softmax would see its part only.
    """
    if _current.get() is not None:
        raise RuntimeError("the sequence is sharded already; expected one shard_sequence at a time")
    shards = Shards(group)
    token = _current.set(shards)
    try:
        yield shards
    finally:
        _current.reset(token)


class _Total(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: Tensor, shards: Shards) -> Tensor:
        ctx.shards = shards
        return shards.sum_(part.clone(memory_format=torch.contiguous_format))

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return ctx.shards.sum_(g.clone(memory_format=torch.contiguous_format)), None


class _Before(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: Tensor, shards: Shards) -> Tensor:
        ctx.shards = shards
        return shards.gather(part)[: shards.rank].sum(0)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return ctx.shards.gather(g)[ctx.shards.rank + 1 :].sum(0), None


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: Tensor, shards: Shards) -> Tensor:
        return shards.sum_(part.clone(memory_format=torch.contiguous_format))

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return g, None


class _Share(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, whole: Tensor, size: int) -> Tensor:
        ctx.size = size
        return whole.view_as(whole)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return g / ctx.size, None
