"""Time and memory of Primal-Attention against the matrix products it cannot avoid.

    python benchmarks/attention.py                  # everything, about ten minutes on two cores
    python benchmarks/attention.py --only training --repeats 9

Ratios are taken inside one run: all candidates in turn, the median over rounds. The unit is the
*floor*: the block's own projections (q and k, and the output) and nothing else. What is timed is
first compared with the plain reference; the benchmark refuses to report if they differ. Writes a
table (Markdown), the figures (JSON) and a picture to --out.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import platform
from collections.abc import Callable
from pathlib import Path

import torch
from measure import peak_megabytes
from rivals import (
    Floor,
    FusedSoftmax,
    LinearAttention,
    MaterialisedSoftmax,
    Products,
    PublishedPrimal,
)
from torch import Tensor, nn

import primal_attention as pa
from primal_attention.bench.measure import interleaved, peak_above_start, ratio

# d, heads, rank s, batch, N of the two settings; N for the memory figures
SETTINGS = {
    "d=64": {"d": 64, "heads": 2, "rank": 20, "batch": 4, "length": 4096, "memory_length": 4096},
    "d=512": {"d": 512, "heads": 8, "rank": 30, "batch": 2, "length": 1024, "memory_length": 4096},
}
LENGTHS = [2**k for k in range(10, 19)]
PRODUCTS = "products of primal free alone"
NAMES = [
    "floor",
    PRODUCTS,
    "primal data",
    "primal free",
    "primal tied",
    "linear (elu + 1)",
    "published primal, data",
    "published primal, free",
    "fused softmax",
    "materialised softmax",
]


def build(name: str, d: int, heads: int, rank: int) -> nn.Module:
    torch.manual_seed(0)
    if name == "floor":
        return Floor(d)
    if name == PRODUCTS:
        return Products(d, heads, rank)
    if name.startswith("primal "):
        return pa.PrimalAttention(d, heads, rank=rank, weights=name.split()[1])
    if name.startswith("published"):
        return PublishedPrimal(d, heads, rank, data=name.endswith("data"))
    plain = {
        "linear (elu + 1)": LinearAttention,
        "fused softmax": FusedSoftmax,
        "materialised softmax": MaterialisedSoftmax,
    }
    return plain[name](d, heads)


def training_step(module: nn.Module, x: Tensor, g: Tensor, g_qk: Tensor) -> Callable[[], None]:
    """Forward and backward to all parameters and the input; primal blocks with the KSVD loss."""
    inputs = [x, *module.parameters()]
    extra = module.inputs(x) if isinstance(module, Products) else ()
    g_extra = torch.randn(module.sides, module.rank, x.shape[0] * x.shape[1]) if extra else None

    def step() -> None:
        if isinstance(module, Products):
            grads = [g, g_qk, g_extra]
            torch.autograd.grad(module(x, *extra), [*inputs, *extra], grads)
        elif isinstance(module, Floor):
            out, qk = module(x)
            torch.autograd.grad([out, qk], inputs, [g, g_qk])
        elif isinstance(module, pa.PrimalAttention):
            out, _ = module(x)
            torch.autograd.grad([out, 0.1 * pa.ksvd_loss(module)], inputs, [g, None])
        elif isinstance(module, PublishedPrimal):
            out, loss = module(x)
            torch.autograd.grad([out, 0.1 * loss], inputs, [g, None])
        else:
            torch.autograd.grad(module(x), inputs, g)

    return step


def inference_step(module: nn.Module, x: Tensor) -> Callable[[], None]:
    module.eval()

    def step() -> None:
        with torch.no_grad():
            module(x)

    return step


def tensors(batch: int, length: int, d: int) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    x = torch.randn(batch, length, d, requires_grad=True)
    return x, torch.randn(batch, length, d), torch.randn(batch, length, 2 * d)


def check_all() -> None:
    """Refuse to time what is not correct: the fast passes against the plain reference, in training
    (outputs, loss, all gradients), without gradient (in pieces) and folded."""
    for s in SETTINGS.values():
        x = tensors(s["batch"], s["length"], s["d"])[0].detach()
        for name in NAMES:
            module = build(name, s["d"], s["heads"], s["rank"])
            if not isinstance(module, pa.PrimalAttention):
                continue
            truth = copy.deepcopy(module)
            truth.fast = False
            for ours, right in zip(step_results(module, x), step_results(truth, x), strict=True):
                expect_near(f"{name}, training", ours, right)
            module.eval()
            truth.eval()
            with torch.no_grad():
                right = truth(x)[0]
                expect_near(f"{name}, inference", module(x)[0], right)
                if name == "primal free":
                    expect_near(f"{name}, folded", pa.fold_(module)(x)[0], right)


def step_results(layer: pa.PrimalAttention, x: Tensor) -> list[Tensor]:
    leaf = x.clone().requires_grad_()
    out, _ = layer(leaf)
    loss = pa.ksvd_loss(layer)
    grads = torch.autograd.grad(out.square().mean() + loss, [leaf, *layer.parameters()])
    return [out.detach(), loss.detach(), *grads]


def expect_near(what: str, ours: Tensor, right: Tensor) -> None:
    error = (ours - right).norm() / right.norm().clamp(min=1e-12)
    if not error < 1e-3:
        raise SystemExit(f"{what} differs from the reference by {error:.2e}: nothing is reported")


def training_table(repeats: int) -> dict[str, dict[str, float]]:
    table: dict[str, dict[str, float]] = {}
    for setting, s in SETTINGS.items():
        x, g, g_qk = tensors(s["batch"], s["length"], s["d"])
        modules = {name: build(name, s["d"], s["heads"], s["rank"]) for name in NAMES}
        quick = {n: training_step(m, x, g, g_qk) for n, m in modules.items() if "softmax" not in n}
        slow = {n: training_step(m, x, g, g_qk) for n, m in modules.items() if "softmax" in n}
        seconds = interleaved(quick, repeats)
        table[setting] = {name: ratio(t, seconds["floor"]) for name, t in seconds.items()}
        seconds = interleaved({"floor": quick["floor"], **slow}, max(3, repeats // 5), warm_up=1)
        table[setting] |= {name: ratio(seconds[name], seconds["floor"]) for name in slow}
    return table


def inference_table(repeats: int) -> dict[str, dict[str, float]]:
    """Multiples of the floor's forward pass; `folded` is the inference form of free weights."""
    table = {}
    for setting, s in SETTINGS.items():
        x = tensors(s["batch"], s["length"], s["d"])[0].detach()
        kinds = [n for n in NAMES if n == "floor" or n.startswith(("primal", "linear", "fused"))]
        modules = {name: build(name, s["d"], s["heads"], s["rank"]) for name in kinds}
        modules["primal free, folded"] = pa.fold_(copy.deepcopy(modules["primal free"]))
        seconds = interleaved({n: inference_step(m, x) for n, m in modules.items()}, repeats)
        table[setting] = {name: ratio(t, seconds["floor"]) for name, t in seconds.items()}
    return table


def growth(repeats: int) -> dict[str, object]:
    """Time against length at d = 64, batch 1: training and inference."""
    s = SETTINGS["d=64"]
    names = ["floor", "primal data", "primal free", "primal tied"]
    modules = {name: build(name, s["d"], s["heads"], s["rank"]) for name in names}
    series: dict[str, list[float]] = {f"{n}, {m}": [] for n in names for m in ("train", "infer")}
    for length in LENGTHS:
        x, g, g_qk = tensors(1, length, s["d"])
        steps = {f"{n}, train": training_step(m, x, g, g_qk) for n, m in modules.items()}
        frozen = {n: copy.deepcopy(m) for n, m in modules.items()}
        steps |= {f"{n}, infer": inference_step(m, x.detach()) for n, m in frozen.items()}
        for name, seconds in interleaved(steps, max(3, repeats // 3), warm_up=2).items():
            series[name].append(sorted(seconds)[len(seconds) // 2])
    exponents = {name: slope(LENGTHS, seconds) for name, seconds in series.items()}
    longest = {
        n: series[f"{n}, infer"][-1] / series["floor, infer"][-1] for n in names if n != "floor"
    }
    return {"lengths": LENGTHS, "seconds": series, "exponent": exponents, "at longest": longest}


def slope(lengths: list[int], values: list[float]) -> float:
    """The least-squares exponent of a power law."""
    logs = [(math.log(n), math.log(v)) for n, v in zip(lengths, values, strict=True)]
    mean_x, mean_y = (sum(c) / len(logs) for c in zip(*logs, strict=True))
    top = sum((a - mean_x) * (b - mean_y) for a, b in logs)
    return top / sum((a - mean_x) ** 2 for a, _ in logs)


def memory_table() -> dict[str, dict[str, float]]:
    script = Path(__file__)
    table: dict[str, dict[str, float]] = {
        f"training, {setting}": {
            name: peak_megabytes(script, "train", name, setting)
            for name in NAMES
            if name != PRODUCTS
        }
        for setting in SETTINGS
    }
    table["inference, d=64, N=262144, batch 1"] = {
        name: peak_megabytes(script, "infer", name, "d=64")
        for name in NAMES
        if name == "floor" or name.startswith("primal")
    }
    return table


def memory_of(mode: str, name: str, setting: str) -> float:
    s = SETTINGS[setting]
    module = build(name, s["d"], s["heads"], s["rank"])
    training_step(module, *tensors(1, 64, s["d"]))()  # libraries and their own buffers
    if mode == "infer":
        return peak_above_start(inference_step(module, tensors(1, 2**18, s["d"])[0].detach()))
    return peak_above_start(training_step(module, *tensors(s["batch"], s["memory_length"], s["d"])))


def markdown(results: dict[str, object]) -> str:
    blocks = []
    titles = {
        "training": "Forward + backward with the KSVD loss, multiples of the floor",
        "inference": "Forward without gradient, multiples of the floor's forward",
        "memory": "Peak memory above the inputs, MB (each in a process of its own)",
    }
    for key, title in titles.items():
        table = results.get(key)
        if not isinstance(table, dict):
            continue
        rows = list(dict.fromkeys(name for column in table.values() for name in column))
        lines = [f"**{title}**", "", f"| | {' | '.join(table)} |", f"|---|{'---|' * len(table)}"]
        digits = 0 if key == "memory" else 2
        for name in rows:
            cells = [f"{c[name]:.{digits}f}" if name in c else "" for c in table.values()]
            lines.append(f"| {name} | {' | '.join(cells)} |")
        blocks.append("\n".join(lines))
    if isinstance(found := results.get("growth"), dict):
        lines = [
            f"**Growth of the time from N = {LENGTHS[0]:,} to {LENGTHS[-1]:,}** (d = 64, batch 1)",
            "", "| | exponent |", "|---|---|",
            *(f"| {name} | {value:.3f} |" for name, value in found["exponent"].items()),
        ]  # fmt: skip
        blocks.append("\n".join(lines))
        cells = ", ".join(f"{n} {v:.2f}" for n, v in found["at longest"].items())
        blocks.append(f"Inference at N = {LENGTHS[-1]:,} in multiples of the floor's: {cells}.")
    return "\n\n".join(blocks) + "\n"


def picture(results: dict[str, object], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4.2))
    if isinstance(table := results.get("training"), dict):
        names = [n for n in NAMES if n != "floor"]
        for k, (setting, column) in enumerate(table.items()):
            places = [i + (k - 0.5) * 0.38 for i in range(len(names))]
            axes[0].barh(places, [column[n] for n in names], height=0.36, label=setting)
        axes[0].set_yticks(range(len(names)), names)
        axes[0].invert_yaxis()
        axes[0].set_xscale("log")
        axes[0].axvline(1.0, color="black", linewidth=0.8)
        axes[0].set_xlabel("forward + backward, multiples of the block's own projections")
        axes[0].legend()
    if isinstance(found := results.get("growth"), dict):
        for name, seconds in found["seconds"].items():
            style = "--" if name.endswith("infer") else "-"
            axes[1].loglog(LENGTHS, seconds, style, marker="o", markersize=3, label=name)
        axes[1].set_xlabel("length N")
        axes[1].set_ylabel("seconds (d = 64, batch 1)")
        axes[1].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = {
        "training": lambda: training_table(arguments.repeats),
        "inference": lambda: inference_table(arguments.repeats),
        "growth": lambda: growth(arguments.repeats),
        "memory": memory_table,
    }
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--repeats", type=int, default=25)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", choices=list(parts), nargs="*", default=list(parts))
    parser.add_argument("--memory-of", nargs=3, metavar=("MODE", "NAME", "SETTING"))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.memory_of:
        print(json.dumps(memory_of(*arguments.memory_of)))
        return
    where = f"{platform.machine()}, {arguments.threads} threads, torch {torch.__version__}"
    print("checking against the reference ...", flush=True)
    check_all()
    results: dict[str, object] = {"machine": where}
    for name in arguments.only:
        print(f"measuring {name} ...", flush=True)
        results[name] = parts[name]()
    arguments.out.mkdir(parents=True, exist_ok=True)
    text = f"{where}\n\n{markdown(results)}"
    (arguments.out / "attention.md").write_text(text)
    (arguments.out / "attention.json").write_text(json.dumps(results, indent=1))
    picture(results, arguments.out / "attention.png")
    print(text)
    print(f"written: {arguments.out}/attention.md, attention.json, attention.png")


if __name__ == "__main__":
    main()
