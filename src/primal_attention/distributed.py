"""Sequence parallelism: one sequence over several workers, exact, with communication that does not
grow with the length.

    torchrun --nproc-per-node 2 script.py

    dist.init_process_group("gloo")
    part = pa.distributed.own_part(x)                     # (B, N / workers, d)
    with pa.distributed.shard_sequence():
        out, _ = layer(part)
        loss = task_loss(out) + eta * pa.ksvd_loss(layer)
        loss.backward()
    pa.distributed.sum_gradients(layer)

Every worker holds consecutive positions of the same samples, worker 0 the first ones. What they
exchange does not depend on the length: the anchor rows, the sums of tied weights or those of the
workers before in causal layers, and the numbers of J.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

__all__ = ["Shards", "WholeSequence", "own_part", "shard_sequence", "sum_gradients"]


class WholeSequence:
    """A sequence that one process holds as a whole: every exchange is the identity."""

    whole: ClassVar[bool] = True

    def count(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        """(B,): the number of valid positions of sequences x (B, N, ...)."""
        if ignore is None:
            return torch.full((x.shape[0],), x.shape[1], device=x.device)
        return (~ignore).sum(-1)

    def total(self, part: Tensor) -> Tensor:
        """The sum over the workers, differentiable: each gets the gradients of all."""
        return part

    def before(self, carried: Tensor, own: Callable[[], Tensor]) -> Tensor:
        """The sum of what precedes this part: `carried` for a whole sequence, else the sum over the
        workers before this one of what they `own`, differentiable."""
        return carried

    def end(self, after: Tensor, own: Callable[[], Tensor]) -> Tensor:
        """The sum at the very end of the sequence: `after` this part, or `once` of what all own."""
        return after

    def once(self, part: Tensor) -> Tensor:
        """The sum over the workers of a term of a loss that all of them compute alike. The workers'
        gradients together are then those of one such loss."""
        return part

    def shared(self, whole: Tensor) -> Tensor:
        """A term of such a loss that every worker has as a whole: one share of its gradient."""
        return whole

    def sum_(self, tensor: Tensor) -> Tensor:
        """The sum over the workers; the tensor is overwritten."""
        return tensor

    def number(self, positions: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
        """Numbers (B, N) of positions among the `count` (B,) valid ones of this part as numbers in
        the whole sequence, and how many that has, (B,)."""
        return positions, count


class Shards(WholeSequence):
    """The workers that hold the parts of a sequence. `numbers` counts what this one has sent, in
    forward and backward passes."""

    whole: ClassVar[bool] = False

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

    def count(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        return self.sum_(super().count(x, ignore))

    def total(self, part: Tensor) -> Tensor:
        summed: Tensor = _Total.apply(part, self)
        return summed

    def before(self, carried: Tensor, own: Callable[[], Tensor]) -> Tensor:
        summed: Tensor = _Before.apply(own(), self)
        return summed

    def end(self, after: Tensor, own: Callable[[], Tensor]) -> Tensor:
        return self.once(own())

    def once(self, part: Tensor) -> Tensor:
        summed: Tensor = _Once.apply(part, self)
        return summed

    def shared(self, whole: Tensor) -> Tensor:
        same = whole.view_as(whole)
        if same.requires_grad:
            same.register_hook(lambda g: g / self.size)
        return same

    def sum_(self, tensor: Tensor) -> Tensor:
        tensor = tensor.contiguous()
        self.numbers += tensor.numel()
        dist.all_reduce(tensor, group=self.group)
        return tensor

    def number(self, positions: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
        everywhere = self.gather(count)  # (workers, B)
        return positions + everywhere[: self.rank].sum(0).unsqueeze(-1), everywhere.sum(0)

    def gather(self, tensor: Tensor) -> Tensor:
        """The tensors of all workers, (workers, ...)."""
        self.numbers += tensor.numel()
        parts = [torch.empty_like(tensor) for _ in range(self.size)]
        dist.all_gather(parts, tensor.contiguous(), group=self.group)
        return torch.stack(parts)


WHOLE = WholeSequence()
_current: ContextVar[WholeSequence] = ContextVar("shards", default=WHOLE)


def current_shards() -> WholeSequence:
    """How the sequences of a call are held: as a whole, or in shards."""
    return WHOLE if torch.compiler.is_compiling() else _current.get()


@contextmanager
def shard_sequence(group: dist.ProcessGroup | None = None) -> Iterator[Shards]:
    """Inside it, a primal layer takes its input as this worker's part of longer sequences.

        with pa.distributed.shard_sequence() as shards:
            out, _ = layer(part, key_padding_mask=part_of_the_mask)       # (B, N_part, d)

    The output is this worker's part of what one process would compute, to rounding; so is J, and
    the gradients, once they are summed over the workers (`sum_gradients`), are those of the sum of
    the workers' task losses and of one KSVD loss. Every worker of the group must make the same
    calls; the parts may differ in length. Self-attention only. Other layers of a model are left
    alone: position-wise ones need nothing, softmax would see its own part only.
    """
    if not _current.get().whole:
        raise RuntimeError("the sequence is sharded already; expected one shard_sequence at a time")
    shards = Shards(group)
    token = _current.set(shards)
    try:
        yield shards
    finally:
        _current.reset(token)


def own_part(sequence: Tensor, group: dist.ProcessGroup | None = None, *, dim: int = 1) -> Tensor:
    """This worker's positions of a sequence that every worker has as a whole; a view. The parts are
    equal up to one position."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    if sequence.shape[dim] < size:
        raise ValueError(
            f"the sequence has length {sequence.shape[dim]}; expected at least one position for "
            f"each of {size} workers"
        )
    return sequence.tensor_split(size, dim=dim)[rank]


@torch.no_grad()
def sum_gradients(model: nn.Module, group: dist.ProcessGroup | None = None) -> None:
    """Sum the parameters' gradients over the workers, in one message for each type of number."""
    by_type: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for parameter in model.parameters():
        if parameter.requires_grad:
            if parameter.grad is None:  # it took no part here, but may have elsewhere
                parameter.grad = torch.zeros_like(parameter)
            gradient = parameter.grad
            by_type.setdefault((gradient.device, gradient.dtype), []).append(gradient)
    for gradients in by_type.values():
        flat = torch.cat([g.reshape(-1) for g in gradients])
        dist.all_reduce(flat, group=group)
        sizes = [g.numel() for g in gradients]
        for gradient, summed in zip(gradients, flat.split(sizes), strict=True):
            gradient.copy_(summed.view_as(gradient))


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
