"""Primal-Attention on a sequence of 100,000 positions: speed, spectrum, and a picture.

    python examples/long_sequence.py

The kernel of one head would have 10^10 entries; it is never formed.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

import primal_attention as pa

LENGTH, WIDTH, HEADS, RANK = 100_000, 64, 2, 20
LENGTHS = (1_000, 3_000, 10_000, 30_000, LENGTH)
SOFTMAX_PART = 20  # softmax is timed on this fraction of the queries beyond 3,000 positions


def signal(length: int) -> Tensor:
    """A slowly drifting mixture of oscillations seen through 64 noisy channels, (1, N, 64)."""
    generator = torch.Generator().manual_seed(0)
    t = torch.linspace(0, 400, length)
    waves = [torch.sin(w * t + 0.02 * t.square() / w) for w in (0.7, 1.3, 2.9, 5.1, 7.7, 11.0)]
    sources = torch.stack([*waves, t / 400], dim=-1)  # (N, 7)
    mix = torch.randn(sources.shape[-1], WIDTH, generator=generator)
    noise = 0.3 * torch.randn(length, WIDTH, generator=generator)
    return (sources @ mix + noise).unsqueeze(0)


def seconds(call: Callable[[], object], repeats: int = 5) -> float:
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def softmax_seconds(layer: torch.nn.Module, x: Tensor) -> float:
    """Time of softmax attention; for long sequences of a part of the queries, times the parts."""
    part = 1 if x.shape[1] <= 3_000 else SOFTMAX_PART
    queries = x[:, ::part].contiguous()
    return part * seconds(lambda: layer(queries, x, x), repeats=3 if part == 1 else 1)


def speed(x: Tensor) -> dict[str, list[float]]:
    torch.manual_seed(0)
    layers = {
        f"primal, {kind}": pa.PrimalAttention(WIDTH, HEADS, rank=RANK, weights=kind).eval()
        for kind in ("data", "tied", "free")
    }
    softmax = pa.make_attention("softmax", WIDTH, HEADS).eval()
    table: dict[str, list[float]] = {"softmax (fused)": []}
    for length in LENGTHS:
        part = x[:, :length].contiguous()
        table["softmax (fused)"].append(softmax_seconds(softmax, part))
        for name, layer in layers.items():
            table.setdefault(name, []).append(seconds(lambda m=layer, p=part: m(p)))
    return table


def show_speed(table: dict[str, list[float]]) -> None:
    print(f"\nForward pass in milliseconds, width {WIDTH}, {HEADS} heads, rank {RANK}")
    print(f"{'positions':>18}" + "".join(f"{n:>11,}" for n in LENGTHS))
    for name, row in table.items():
        print(f"{name:>18}" + "".join(f"{1e3 * s:>11.1f}" for s in row))
    gain = [a / b for a, b in zip(table["softmax (fused)"], table["primal, tied"], strict=True)]
    print(f"{'softmax / tied':>18}" + "".join(f"{g:>10.1f}x" for g in gain))
    print(f"(softmax beyond 3,000 positions: timed on 1/{SOFTMAX_PART} of the queries)")


def show_spectrum(layer: pa.PrimalAttention, x: Tensor) -> Tensor:
    """The exact singular values of both heads' kernels, from factors of rank p."""
    start = time.perf_counter()
    factors = layer.factors(x)
    sigma = factors.singular_values()[0]  # (h, p)
    took = time.perf_counter() - start
    entries = x.shape[1] ** 2
    print(
        f"\nExact spectrum of the induced kernels, {x.shape[1]:,} x {x.shape[1]:,} "
        f"({entries:.0e} entries each, never formed), in {took:.2f} s"
    )
    print(
        f"{'head':>6}{'sigma_1':>12}{'sigma_5':>12}{'sigma_20':>12}{'90 % by':>9}{'eff. rank':>11}"
    )
    explained, rank = factors.explained_variance()[0], factors.effective_rank()[0]
    for h, s in enumerate(sigma):
        by = int((explained[h] < 0.9).sum()) + 1
        first, fifth, last = (f"{s[i]:>12.1f}" for i in (0, 4, 19))
        print(f"{h:>6}{first}{fifth}{last}{by:>9}{rank[h].item():>11.1f}")
    return sigma


def show_ksvd(layer: pa.PrimalAttention, x: Tensor) -> None:
    """J and the distance from a KSVD solution, before and after the exact initialisation."""
    print(
        "\nHow far a layer with free weights is from a KSVD solution (J = 0 alone proves nothing)"
    )
    for title, prepare in (("random", None), ("init_ksvd_", layer.init_ksvd_)):
        if prepare is not None:
            prepare(x)
        found = pa.ksvd_residuals(layer, x)
        print(
            f"{title:>14}: |J| = {found.objective.abs().max().item():.1e}, "
            f"KKT {found.kkt_weights.max().item():.1e}, "
            f"eigenproblem {found.eigenproblem.max().item():.1e}"
        )


def picture(table: dict[str, list[float]], sigma: Tensor, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 3.8))
    for name, row in table.items():
        left.loglog(LENGTHS, row, marker="o", label=name)
    left.set(xlabel="positions", ylabel="seconds, forward", title="Linear against quadratic")
    left.legend()
    for h, s in enumerate(sigma):
        right.semilogy(range(1, len(s) + 1), s, marker=".", label=f"head {h}")
    right.set(xlabel="index", ylabel="singular value", title=f"Kernel of {LENGTH:,} positions")
    right.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/long_sequence"))
    out = parser.parse_args().out
    print(f"Primal-Attention {pa.__version__} on {LENGTH:,} positions ...")
    with torch.no_grad():
        x = signal(LENGTH)
        table = speed(x)
        show_speed(table)
        torch.manual_seed(0)
        layer = pa.PrimalAttention(WIDTH, HEADS, rank=RANK, weights="free")
        sigma = show_spectrum(layer, x)
        show_ksvd(layer.double(), x.double())
    if not all(math.isfinite(v) for v in sigma.flatten().tolist()):
        raise SystemExit("the spectrum is not finite: something is wrong")
    out.mkdir(parents=True, exist_ok=True)
    picture(table, sigma, out / "long_sequence.png")
    print(f"\nPicture: {out / 'long_sequence.png'}")
    print("Next: the examples in README.md, `make bench` for the full benchmark.")


if __name__ == "__main__":
    main()
