"""What a step is made of, as a function of (seed, epoch, step) alone: the cases of a batch, the
random numbers, the learning rate. So a run may be cut anywhere and goes on as if it had not been.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator

import torch

from .config import EngineConfig


def from_step(
    one_pass: Callable[[int], list[list[int]]], length: int, step: int, last: int
) -> Iterator[list[int]]:
    """The batches of the steps `step`, counted from 0, to `last` (not included), where every pass
    `one_pass(number)` over the cases has `length` batches."""
    while step < last:
        begin = step % length
        chosen = one_pass(step // length + 1)[begin : begin + last - step]
        yield from chosen
        step += len(chosen)


def share(indices: list[int], rank: int, world: int) -> list[int]:
    """The part of a batch that process `rank` of `world` computes: equal up to one case."""
    size, more = divmod(len(indices), world)
    first = rank * size + min(rank, more)
    return indices[first : first + size + (rank < more)]


def seed_random(device: torch.device, *key: int | str) -> None:
    """Seed torch's generators of the CPU and of a device by a key.

    Not by torch.manual_seed, which looks for every kind of device and takes 0.2 ms.
    """
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    number = int.from_bytes(digest, "little")
    torch.default_generator.manual_seed(number)
    if device.type == "cuda":
        torch.cuda.manual_seed(number)
    elif device.type == "mps":
        torch.mps.manual_seed(number)


def learning_rate(config: EngineConfig, step: int, steps: int) -> float:
    """The learning rate of a step, counted from 0, of `steps` in all: a linear warm-up, then
    constant, or falling with the root of the step, or to zero along a line or half a cosine."""
    if step < config.warmup_steps:
        return config.lr * (step + 1) / config.warmup_steps
    if config.schedule == "constant":
        return config.lr
    if config.schedule == "root":
        return config.lr * math.sqrt(max(1, config.warmup_steps) / (step + 1))
    done = (step - config.warmup_steps) / max(1, steps - config.warmup_steps)
    if config.schedule == "linear":
        return config.lr * (1 - done)
    return config.lr * 0.5 * (1 + math.cos(math.pi * done))
