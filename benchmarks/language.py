"""Language models on WikiText-2: what a start at the co-occurrence of words saves in steps, and the
perplexity of attentions after equal time of one thread.

    python benchmarks/language.py start --data-dir DATA --seeds 0-4 --out start.jsonl
    python benchmarks/language.py time --data-dir DATA --seconds 40 --out time.jsonl

A line is written for every finished case; what a file has is not run again.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path

import torch

from primal_attention.grammar import parse_seeds
from primal_attention.tasks import get_task
from primal_attention.tasks.language.objective import Language
from primal_attention.tasks.language.settings import LanguageConfig
from primal_attention.tasks.language.text import TextData
from primal_attention.train.optim import make_optimizer
from primal_attention.train.order import learning_rate

SMALL = {"width": 64, "feedforward": 128, "heads": 4, "rank": 8, "dropout": 0.0}
JUDGED = 20_000  # tokens of the validation text
ATTENTIONS = ("primal", "softmax,primal", "linear", "softmax")


def words(data_dir: str, vocabulary: int, length: int) -> Language:
    """The objective of WikiText-2 with a short validation text."""
    config = LanguageConfig(
        task="lm/wikitext2", data_dir=data_dir, vocabulary=vocabulary, length=length, **SMALL
    )
    found = Language.load(get_task(config.task), config)
    tokens = found.selection.__getitems__(range(len(found.selection))).tokens.flatten()
    found.selection = TextData(tokens[:JUDGED].numpy(), length)
    return found


@torch.inference_mode()
def judge(objective: Language, model: torch.nn.Module) -> float:
    """The validation loss in nats for each token."""
    model.eval()
    losses, data = [], objective.selection
    for first in range(0, len(data), 16):
        pieces = list(range(first, min(first + 16, len(data))))
        batch = data.__getitems__(pieces)
        losses.append((float(objective.loss(model, batch)), data.count(pieces)))
    model.train()
    return sum(loss * count for loss, count in losses) / sum(count for _, count in losses)


def batches(objective: Language):
    number = 0
    while True:
        number += 1
        yield from objective.batches(number)


def train(objective, config, *, steps=None, seconds=None, every=None):
    """Validation losses by step, of a training of so many steps, or of so much time of one thread
    with a constant rate after the warm-up."""
    objective.config = config
    torch.manual_seed(config.seed)
    model = objective.model().train()
    optimizer = make_optimizer("adamw", model.parameters(), lr=config.lr, weight_decay=0.01)
    curve, spent, step = [], 0.0, 0
    for indices in batches(objective):
        if step == steps or (seconds is not None and spent >= seconds):
            break
        began = time.process_time()
        loss = objective.loss(model, objective.examples.__getitems__(indices))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(config, step, steps or 1)
        optimizer.step()
        spent += time.process_time() - began
        step += 1
        if every and step % every == 0:
            curve.append([step, judge(objective, model)])
    return {"steps": step, "seconds": spent, "loss": judge(objective, model), "curve": curve}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("start", "time"))
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--vocabulary", type=int, default=2000)
    given = parser.parse_args()
    torch.set_num_threads(1)
    lines = given.out.read_text().splitlines() if given.out.exists() else []
    done = {json.loads(line)["case"] for line in lines}
    length = 64 if given.what == "start" else 256
    batch = 16 if given.what == "start" else 4
    objective = words(given.data_dir, given.vocabulary, length)
    base = {
        "task": "lm/wikitext2", "length": length, "batch_size": batch, "lr": 3e-3,
        "warmup_steps": 20, "schedule": "constant", **SMALL,
    }  # fmt: skip
    for seed in parse_seeds(given.seeds):
        for kind in ("random", "cooccurrence") if given.what == "start" else ATTENTIONS:
            case = f"{given.what} {kind} {seed}"
            if case in done:
                continue
            if given.what == "start":
                config = LanguageConfig(**base, seed=seed, start=kind)
                made = train(objective, config, steps=given.steps, every=20)
            else:
                names = tuple(kind.split(",")) if "," in kind else (kind, kind)
                config = LanguageConfig(**base, seed=seed, attention=names)
                made = train(objective, config, seconds=given.seconds)
            made = {"case": case, "perplexity": math.exp(made["loss"]), **made}
            with open(given.out, "a") as file:
                file.write(json.dumps(made) + "\n")
            print(case, f"loss {made['loss']:.3f}, {made['steps']} steps", flush=True)


if __name__ == "__main__":
    main()
