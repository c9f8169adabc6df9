"""Two claims about attention and transport: is the learned map near the cheapest, is its path long?

    python benchmarks/transport.py --seeds 3

After Quadrio & Candelieri (2025), who say of small softmax models on tables that the map of a
trained layer is nearly an optimal transport, and that training goes there by a detour. Here two
layers of width 32 learn scikit-learn's digits (sequences of 8 rows) and JapaneseVowels (frames of
12 coefficients), 300 steps; 200 rows of held-out cases are looked at before training and after
every 30 steps. Optimality: W_2^2 / mean |x - T x|^2 of the map from what a layer is given to what
it gives, 1 where it is the cheapest. Efficiency: W_2 from the first outputs to the last over the
length of the path, 1 where it is straight. Random: the optimality of a map with the same rows in a
random order, which says how much 0.9 is worth.

A line for each network goes to `benchmarks/results/transport.jsonl`; a run that is interrupted
continues there.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from primal_attention.analysis.optimal_transport import layer_transport, moved_rows
from primal_attention.models import SequenceClassifier
from primal_attention.tasks import get_task
from primal_attention.train.track import TransportTracker

RESULTS = Path(__file__).parent / "results" / "transport.jsonl"
STEPS, EVERY, BATCH = 300, 30, 32


def digits() -> tuple[list[Any], Any]:
    found = load_digits()
    return list(found.images / 16), found.target


def vowels() -> tuple[list[Any], Any]:
    part = get_task("uea/JapaneseVowels").load(None)["train"]
    whole = np.concatenate(part.series)
    return [(x - whole.mean(0)) / whole.std(0) for x in part.series], part.labels


def batch_of(series: list[Any]) -> tuple[Tensor, Tensor]:
    longest = max(map(len, series))
    x = torch.zeros(len(series), longest, series[0].shape[1])
    padding = torch.ones(len(series), longest, dtype=torch.bool)
    for row, one in enumerate(series):
        x[row, : len(one)], padding[row, : len(one)] = torch.from_numpy(one).float(), False
    return x, padding


def follow(name: str, attention: str, seed: int) -> dict[str, Any]:
    """Train one network and look at it; the accuracy is that of held-out cases."""
    series, labels = {"digits": digits, "JapaneseVowels": vowels}[name]()
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(series))
    held_out, kept = np.split(order, [len(order) // 4])
    torch.manual_seed(seed)
    model = SequenceClassifier(
        classes=int(labels.max()) + 1, channels=series[0].shape[1],
        max_length=max(map(len, series)), attention=(attention, attention), width=32, heads=4,
        feedforward=64, dropout=0.0, norm="pre",
    )  # fmt: skip
    shown = batch_of([series[i] for i in held_out[:40]])
    tracker, looks = TransportTracker(), []
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    for step in range(STEPS + 1):
        if step % EVERY == 0:
            looks.append(tracker.look(model, [shown]))
        rows = rng.choice(kept, BATCH)
        model.train()
        x, padding = batch_of([series[i] for i in rows])
        loss = nn.functional.cross_entropy(model(x, padding), torch.from_numpy(labels[rows]))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.eval()
    with torch.no_grad():
        said = model(*batch_of([series[i] for i in held_out])).argmax(1).numpy()
    seen, _ = moved_rows(model, [shown], most=200)
    chance = {
        layer: layer_transport(layer, x, rng.permutation(y)).optimality
        for layer, (x, y) in seen.items()
    }
    return {
        "set": name, "attention": attention, "seed": seed,
        "accuracy": float((said == labels[held_out]).mean()), "looks": looks, "random": chance,
    }  # fmt: skip


def show(lines: list[dict[str, Any]]) -> None:
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in lines:
        groups.setdefault((one["set"], one["attention"]), []).append(one)
    print("set, attention, layer: accuracy; optimality before -> after (random); efficiency")
    for (name, attention), members in groups.items():
        accuracy = np.mean([one["accuracy"] for one in members])
        for number, layer in enumerate(members[0]["random"]):
            first, last, path = (
                [one["looks"][at][layer][key] for one in members]
                for at, key in ((0, "optimality"), (-1, "optimality"), (-1, "efficiency"))
            )
            chance = np.mean([one["random"][layer] for one in members])
            print(
                f"  {name}, {attention}, layer {number}, {len(members)} seeds: {accuracy:.3f}; "
                f"{np.mean(first):.3f} -> {np.mean(last):.3f} "
                f"[{min(last):.3f}, {max(last):.3f}] ({chance:.3f}); "
                f"{np.mean(path):.3f} [{min(path):.3f}, {max(path):.3f}]"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sets", nargs="+", default=["digits", "JapaneseVowels"])
    parser.add_argument("--attention", nargs="+", default=["softmax", "primal", "sinkhorn"])
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    lines = (
        [json.loads(one) for one in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    )
    done = {(one["set"], one["attention"], one["seed"]) for one in lines}
    for seed in range(asked.seeds):
        for name in asked.sets:
            for attention in asked.attention:
                if (name, attention, seed) not in done:
                    lines.append(follow(name, attention, seed))
                    RESULTS.parent.mkdir(exist_ok=True)
                    with RESULTS.open("a") as file:
                        file.write(json.dumps(lines[-1]) + "\n")
    show(lines)


if __name__ == "__main__":
    main()
