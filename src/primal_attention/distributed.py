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
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn

from .kernels.shards import Shards, shard_sequence

__all__ = ["Shards", "own_part", "shard_sequence", "sum_gradients"]


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
