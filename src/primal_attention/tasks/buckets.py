"""The batches of a pass over the cases: any cases, or sequences of similar length."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

POOL = 50  # batches that are sorted together: enough to be similar, few enough to stay mixed


def shuffled_batches(cases: int, batch_size: int, seed: int, number: int) -> list[list[int]]:
    """The indices of the batches of a pass over all cases, passes counted from 1; the last batch
    may be smaller."""
    order = np.random.default_rng([seed, number]).permutation(cases).tolist()
    return [order[first : first + batch_size] for first in range(0, cases, batch_size)]


def bucket_batches(
    lengths: npt.ArrayLike | torch.Tensor,
    batch_size: int,
    seed: int,
    epoch: int,
    *,
    pool: int = POOL,
) -> list[list[int]]:
    """The indices of the batches of an epoch, a function of (seed, epoch) alone. Short sequences do
    not pay for long ones.

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
