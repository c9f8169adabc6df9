"""Kinds of primal layers and their rivals on real long sequences, after equal time of one thread.

    python benchmarks/kinds_arena.py lra/text lra/image --data-dir FOLDER --seconds 90
    python benchmarks/kinds_arena.py lra/listops --data-dir FOLDER --seconds 90 --seeds 0-1

The two-layer model of the Long-Range Arena (width 64, 2 heads, rank 8), AdamW with learning rate
1e-3 after 50 steps, batches of 8; Text is cut at 1,024 bytes. Accuracy on cases of the validation
part, which nothing is chosen on; test sets are not read. Time counts training steps only. A line is
written to `benchmarks/results/kinds_arena.jsonl` for every run; what it has is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch import nn
from torch.nn import functional as F

import primal_attention as pa
from primal_attention.grammar import parse_seeds
from primal_attention.runs.statistics import mean_interval
from primal_attention.tasks import get_task
from primal_attention.tasks.classification.evaluate import similar_lengths
from primal_attention.tasks.classification.objective import Classification
from primal_attention.train.config import settings_for

RESULTS = Path(__file__).parent / "results" / "kinds_arena.jsonl"
JUDGED = 1000  # cases of the validation part
KINDS: dict[str, dict[str, Any]] = {
    "primal, tied, elu": {"weights": "tied", "feature_map": "elu"},
    "primal, tied, softmax": {"weights": "tied", "feature_map": "softmax"},
    "primal, tied, cosine": {"weights": "tied", "feature_map": "cosine"},
    "primal, data, cosine": {"weights": "data", "feature_map": "cosine"},
    "primal, free, cosine": {"weights": "free", "feature_map": "cosine"},
    "linear": {"attention": "linear"},
    "softmax": {"attention": "softmax"},
    "none": {"attention": "none"},
}


def load(task: str, seed: int, folder: str, kind: str) -> Classification:
    given = dict(KINDS[kind])
    layers = (given.pop("attention", "primal"),) * 2
    config = settings_for(
        task, layers, seed=seed, data_dir=folder, width=64, heads=2, rank=8, batch_size=8,
        lr=1e-3, dropout=0.0, max_length=1024 if task == "lra/text" else get_task(task).max_length,
        **given,
    )  # fmt: skip
    return Classification.load(get_task(task), config)


def learn(objective: Classification, seconds: float) -> dict[str, Any]:
    config = objective.config
    torch.manual_seed(config.seed)
    model = objective.model().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, betas=(0.9, 0.95))
    spent, step, number = 0.0, 0, 0
    while spent < seconds:
        number += 1
        for indices in objective.batches(number):
            batch = objective.examples.__getitems__(indices)
            began = time.process_time()
            for group in optimizer.param_groups:
                group["lr"] = config.lr * min(1.0, (step + 1) / 50)
            loss = objective.loss(model, batch)
            if "primal" in config.attention and config.eta:
                loss = loss + config.eta * pa.ksvd_loss(model, growth=config.ksvd_growth)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            spent, step = spent + time.process_time() - began, step + 1
            if spent >= seconds:
                break
    right, loss, targets = judge(model, objective.selection)
    largest = Counter(targets.tolist()).most_common(1)[0][1] / len(targets)
    return {"accuracy": right, "loss": loss, "steps": step, "largest": largest}


@torch.inference_mode()
def judge(model: nn.Module, data: Any) -> tuple[float, float, torch.Tensor]:
    """Accuracy and loss on cases that are drawn from a part, and their classes."""
    model.eval()
    drawn = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))[:JUDGED]
    targets, right, loss = data.targets[drawn], 0, 0.0
    for places in similar_lengths(data.lengths[drawn].numpy(), 8192):
        batch = data.__getitems__(drawn[places].tolist())
        logits = model(batch.inputs, batch.padding)
        right += int((logits.argmax(-1) == batch.targets).sum())
        loss += float(F.cross_entropy(logits, batch.targets, reduction="sum"))
    return right / len(targets), loss / len(targets), targets


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tasks", nargs="+")
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--seconds", type=float, default=90.0)
    parser.add_argument("--seeds", type=parse_seeds, default=[0])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    rows = [json.loads(line) for line in lines]
    for task in asked.tasks:
        for seed in asked.seeds:
            for kind in asked.kinds:
                key = {"task": task, "kind": kind, "seconds": asked.seconds, "seed": seed}
                if any(key.items() <= row.items() for row in rows):
                    continue
                row = key | learn(load(task, seed, asked.data_dir, kind), asked.seconds)
                rows.append(row)
                print(json.dumps(row), flush=True)
                with RESULTS.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    for task in asked.tasks:
        print(
            f"\n{task}, {asked.seconds:g} s\n\n| attention | accuracy, % | steps |\n|---|---|---|"
        )
        for kind in asked.kinds:
            key = {"task": task, "kind": kind, "seconds": asked.seconds}
            mine = [row for row in rows if key.items() <= row.items()]
            if mine:
                middle = mean_interval([100 * row["accuracy"] for row in mine])[0]
                steps = sum(row["steps"] for row in mine) / len(mine)
                print(f"| {kind} | {middle:.1f} ({len(mine)}) | {steps:.0f} |")


if __name__ == "__main__":
    main()
