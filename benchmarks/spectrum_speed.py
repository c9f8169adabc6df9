"""The table of speeds in docs/analysis.md: the spectrum of a primal layer against forming K.

OMP_NUM_THREADS=1 python benchmarks/spectrum_speed.py

Processor seconds, the least of three; forming K and its SVD is run once.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable

import torch

import primal_attention as pa

WIDTH, RANK = 64, 20
SHORT, LONG = 4096, 1_000_000


def processor_seconds(step: Callable[[], object], repeats: int = 3) -> float:
    found = []
    for _ in range(repeats):
        start = time.process_time()
        step()
        found.append(time.process_time() - start)
    return min(found)


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@torch.no_grad()
def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print("| N | heads | `spectrum` | forming K and `svdvals` | ratio |\n|---|---|---|---|---|")
    one = pa.PrimalAttention(WIDTH, 1, rank=RANK).eval()
    x = torch.randn(1, SHORT, WIDTH)
    pa.spectrum(one, x)  # to warm up
    fast = processor_seconds(lambda: pa.spectrum(one, x))
    dense = processor_seconds(lambda: torch.linalg.svdvals(one.factors(x).dense()), repeats=1)
    print(f"| {SHORT:,} | 1 | {1000 * fast:.0f} ms | {dense:.1f} s | {dense / fast:,.0f} |")
    x = torch.randn(1, LONG, WIDTH)
    before = peak_megabytes()
    for heads in (1, 2):
        layer = pa.PrimalAttention(WIDTH, heads, rank=RANK).eval()
        seconds = processor_seconds(lambda layer=layer: pa.spectrum(layer, x))
        print(f"| {LONG:,} | {heads} | {seconds:.1f} s | | |")
    print(f"\nPeak of resident memory: {before:.0f} MB before, {peak_megabytes():.0f} MB after.")


if __name__ == "__main__":
    main()
