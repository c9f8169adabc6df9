"""A stream of many events: time and memory of each, against the number that came before.

    python benchmarks/event_stream.py --events 1000000 --out stream.jsonl

Events come in pieces of 100 of 10 streams, so a million events are 1,000 pieces; each line has the
mean time of an event of one thread, the size of the memory, and that of the process.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path
from typing import Any

import torch

from primal_attention import EventModel

STREAMS, PIECE = 10, 100


def tensors(state: Any):
    for part in state:
        if isinstance(part, torch.Tensor):
            yield part
        elif isinstance(part, tuple):
            yield from tensors(part)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--attention", default="primal")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(0)
    model = EventModel(22, attention=(given.attention,) * 2).eval()
    now = torch.full((STREAMS, 1), 1.5e9, dtype=torch.float64)
    memory, seen, began, mark = None, 0, time.process_time(), 0
    with torch.inference_mode(), open(given.out, "a") as file:
        while seen < given.events:
            gaps = torch.empty(STREAMS, PIECE, dtype=torch.float64).exponential_(generator=g)
            times = now + gaps.cumsum(1)
            now = times[:, -1:]
            types = torch.randint(22, (STREAMS, PIECE), generator=g)
            made, memory = model.prefill(types, times, memory)
            seen += types.numel()
            if seen * 20 // given.events > mark:
                spent, mark = time.process_time() - began, seen * 20 // given.events
                line = {
                    "attention": given.attention,
                    "events": seen,
                    "finite": bool(made.types.isfinite().all()),
                    "microseconds": 1e6 * spent * 20 / given.events,
                    "memory_numbers": sum(t.numel() for t in tensors(memory)),
                    "process_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10,
                }
                file.write(json.dumps(line) + "\n")
                file.flush()
                began = time.process_time()


if __name__ == "__main__":
    main()
