"""Random numbers that come again, with torch's generators left as they were."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Inside the `with`, torch's generators of the CPU and of all graphics cards in use begin at a
    seed; afterwards they go on as if nothing had been drawn."""
    cards = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(cards):
        torch.default_generator.manual_seed(seed)
        if cards:  # before CUDA is in use, a seed would wait there for the first one who needs it
            torch.cuda.manual_seed_all(seed)
        yield
