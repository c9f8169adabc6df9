"""A planted truth for times: 20 irregular events of four marks; which mark is nearest to five units
before the last event? Chance is 0.25, and order alone finds 0.44.

    python benchmarks/planted_mark.py --attention primal softmax primal,softmax --seeds 0-2 \
        --out planted.jsonl

One name stands for both layers; a comma parts the first from the second. A line is written for
every finished case; what a file has is not run again.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path

import torch
from torch.nn import functional as F

from primal_attention.grammar import parse_seeds
from primal_attention.models.events import EventModel, GapScales
from primal_attention.theory.time import TimeScales

EVENTS, AGO, BATCH, JUDGED, EVERY = 20, 5.0, 128, 2000, 250


def draw(batch: int, generator: torch.Generator):
    """Marks and times (batch, EVENTS), and the answers (batch,)."""
    times = torch.empty(batch, EVENTS, dtype=torch.float64)
    times = times.exponential_(generator=generator).cumsum(1)
    marks = torch.randint(4, (batch, EVENTS), generator=generator)
    nearest = (times[:, -1:] - AGO - times).abs().argmin(1, keepdim=True)
    return marks, times, marks.gather(1, nearest).squeeze(1)


@torch.inference_mode()
def judge(model: EventModel) -> float:
    marks, times, answers = draw(JUDGED, torch.Generator().manual_seed(9))
    right = model.eval()(marks, times).types[:, -1].argmax(-1) == answers
    model.train()
    return float(right.double().mean())


def train(attention: str, steps: int, lr: float, seed: int, width: int) -> dict[str, object]:
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    layers = tuple(attention.split(",")) if "," in attention else (attention,) * 2
    model = EventModel(4, attention=layers, width=width, heads=2, dropout=0.0)
    model.set_scales_(TimeScales(0.2, 20.0), GapScales(-0.6, 1.3, 1e-6))
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: min(1, (s + 1) / 50) * 0.5 * (1 + math.cos(math.pi * s / steps))
    )
    curve, began = [], time.process_time()
    for step in range(1, steps + 1):
        marks, times, answers = draw(BATCH, generator)
        optimizer.zero_grad()
        F.cross_entropy(model(marks, times).types[:, -1], answers).backward()
        optimizer.step()
        schedule.step()
        if step % EVERY == 0:
            curve.append([step, judge(model)])
    return {"accuracy": judge(model), "seconds": time.process_time() - began, "curve": curve}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attention", nargs="+", default=["primal"])
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    lines = given.out.read_text().splitlines() if given.out.exists() else []
    done = {json.loads(line)["case"] for line in lines}
    for attention in given.attention:
        for seed in parse_seeds(given.seeds):
            case = f"{attention} {given.steps} {given.lr} {seed}"
            case += "" if given.width == 64 else f" width {given.width}"
            if case in done:
                continue
            found = train(attention, given.steps, given.lr, seed, given.width)
            with open(given.out, "a") as file:
                file.write(json.dumps({"case": case, **found}) + "\n")
            print(case, f"accuracy {found['accuracy']:.3f}", flush=True)


if __name__ == "__main__":
    main()
