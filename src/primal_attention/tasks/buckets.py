"""Batches of sequences of similar length, so that short ones do not pay for long ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Sampler

POOL = 50  # batches that are sorted together: enough to be similar, few enough to stay mixed


def bucket_batches(
    lengths: npt.ArrayLike | torch.Tensor,
    batch_size: int,
    seed: int,
    epoch: int,
    *,
    pool: int = POOL,
) -> list[list[int]]:
    """The indices of the batches of an epoch, a function of (seed, epoch) alone.

    The cases are shuffled, sorted by length within pools of `pool` batches, and cut into batches,
    whose order is shuffled again. Every case is in exactly one batch; one batch may be smaller.
    With `pool=1` a batch is any cases, as it is with fixed padding.
    """
    for name, value in (("batch_size", batch_size), ("pool", pool)):
        if value < 1:
            raise ValueError(f"{name} is {value}; expected an integer of at least 1")
    known = np.asarray(lengths)
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(len(known))
    size = batch_size * pool
    pools = np.arange(len(known)) // size  # of every place in the order
    order = order[np.lexsort((known[order], pools))]
    batches = [order[i : i + batch_size].tolist() for i in range(0, len(order), batch_size)]
    return [batches[i] for i in rng.permutation(len(batches))]


class BucketSampler(Sampler[list[int]]):
    """`bucket_batches` for a DataLoader's `batch_sampler`: one epoch after the other.

    `state_dict` is the place of the next batch; a sampler that loads it goes on with that one.
    """

    def __init__(
        self,
        lengths: npt.ArrayLike | torch.Tensor,
        batch_size: int,
        *,
        seed: int = 0,
        pool: int = POOL,
    ) -> None:
        self.lengths, self.batch_size, self.seed, self.pool = lengths, batch_size, seed, pool
        self.epoch, self.batch = 1, 0  # the epoch under way, and its batches that are done

    def __len__(self) -> int:
        """Batches of an epoch."""
        return -(-len(np.asarray(self.lengths)) // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        """The rest of the epoch under way."""
        chosen = bucket_batches(
            self.lengths, self.batch_size, self.seed, self.epoch, pool=self.pool
        )
        for indices in chosen[self.batch :]:
            self.batch += 1
            yield indices
        self.epoch, self.batch = self.epoch + 1, 0

    def state_dict(self) -> dict[str, int]:
        return {"seed": self.seed, "epoch": self.epoch, "batch": self.batch}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state["seed"] != self.seed:
            raise ValueError(f"the state has seed {state['seed']}; expected {self.seed}")
        self.epoch, self.batch = int(state["epoch"]), int(state["batch"])
