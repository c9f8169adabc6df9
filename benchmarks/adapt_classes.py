"""Fine-tuning after a conversion: classes of chemical reactions, original against converted.

    python benchmarks/adapt_classes.py --model FOLDER --data FOLDER --layers 6 --seeds 0 1 2

--model and --data as in `adapt_reactions.py`; the files have a column `class`, 1 to 10. The
pretrained BERT gets a new head and learns the classes of part a; part b is read once, at the end.
Original: as it is. Adapted: the original is fine-tuned first; then attentions of a measured plan
(made on the first seed's model) are converted and adapted to it on the same labelled part a;
`--attention none` is its dumb baseline, in which they see one position each.
Converted: first, once and without labels, the attentions of a measured plan are converted and the
masked language model is adapted on part a; then the same fine-tuning. Silenced: the same attentions
give nothing but their output bias. Majority: the most frequent class.

Every line is written to `benchmarks/results/adapt_classes.jsonl`, and what is there is not run
again; fine-tuned originals are kept in `--work`.
"""

from __future__ import annotations

import argparse
import copy
import csv
import gzip
import json
import os
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import adapt_reactions
import torch
from adapt_reactions import LONGEST, TOKENS
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import BertForMaskedLM, BertForSequenceClassification

import primal_attention as pa
from primal_attention.convert import converted_layers
from primal_attention.convert.sites import paths
from primal_attention.train.adapt import AdaptSettings

RESULTS = Path(__file__).parent / "results" / "adapt_classes.jsonl"
Batch = dict[str, Tensor]


def read(path: Path, vocabulary: dict[str, int], count: int) -> list[tuple[list[int], int]]:
    """Token numbers and class of the first reactions of a part."""
    with gzip.open(path, "rt") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))[:count]
    unknown = vocabulary["[UNK]"]
    found = []
    for row in rows:
        words = ["[CLS]", *TOKENS.findall(row["reaction"]), "[SEP]"]
        found.append(([vocabulary.get(word, unknown) for word in words], int(row["class"]) - 1))
    return [(ids, label) for ids, label in found if len(ids) <= LONGEST]


def batches(cases: list[tuple[list[int], int]], size: int) -> list[Batch]:
    """Of similar lengths."""
    ordered = sorted(cases, key=lambda case: len(case[0]))
    made = []
    for start in range(0, len(ordered), size):
        part = ordered[start : start + size]
        ids = nn.utils.rnn.pad_sequence([torch.tensor(each) for each, _ in part], batch_first=True)
        mask = nn.utils.rnn.pad_sequence(
            [torch.ones(len(each), dtype=torch.long) for each, _ in part], batch_first=True
        )
        labels = torch.tensor([label for _, label in part])
        made.append({"input_ids": ids, "attention_mask": mask, "labels": labels})
    return made


def adapted(asked: argparse.Namespace, vocabulary: dict[str, int]) -> tuple[Any, list[int]]:
    """The encoder of the adapted language model, and which of its layers are converted."""
    sequences = adapt_reactions.read(asked.data / "uspto50k_a.tsv.gz", vocabulary, 5001)
    learned, _ = adapt_reactions.batches(sequences, 16, vocabulary, seed=1)
    model: Any = BertForMaskedLM.from_pretrained(asked.model, weights_only=True).eval()
    settings = AdaptSettings(
        layerwise=asked.layerwise, steps=asked.adapt_steps, lr=asked.adapt_lr, every=100
    )
    pa.adapt_(
        model, learned, layers="all", count=asked.layers, settings=settings,
        folder=asked.work / f"classes-{asked.layers}-{asked.layerwise}-{asked.adapt_steps}",
        tell=lambda step, steps, text: print(f"{step}/{steps} {text}", flush=True),
    )  # fmt: skip
    return model.bert, places(model)


def places(model: nn.Module) -> list[int]:
    """The blocks whose attention is converted."""
    names = [paths(model, layer)[0] for layer in converted_layers(model)]
    return [int(name.split("layer.")[1].split(".")[0]) for name in names]


def tuned(asked: argparse.Namespace, base: Any, train: list[Batch], seed: int) -> Any:
    """The original with a fine-tuned head, which is kept."""
    model, path = copy.deepcopy(base), asked.work / f"tuned-{asked.steps}-{seed}.safetensors"
    if path.exists():
        model.load_state_dict(load_file(path))
        return model.eval()
    fine_tune(model, train, asked.steps, asked.lr, seed)
    asked.work.mkdir(parents=True, exist_ok=True)
    save_file({name: t.contiguous() for name, t in model.state_dict().items()}, path)
    return model


def adapt_to(
    asked: argparse.Namespace, model: Any, train: list[Batch], which: list[int], seed: int
) -> list[int]:
    """Convert a fine-tuned model in place and adapt it to what it was, with the labels; which of
    its attentions, by a plan unless they are known."""
    settings = AdaptSettings(
        layerwise=asked.layerwise, steps=asked.adapt_steps, lr=asked.adapt_lr, every=50,
        task=1.0, seed=seed,
    )  # fmt: skip
    known_as = (asked.steps, asked.adapt_steps, asked.adapt_lr, seed, asked.attention)
    known: dict[str, Any] = {"layers": rf"layer\.({'|'.join(map(str, which))})\."}
    shuffled = random.Random(seed).sample(train, len(train))
    pa.adapt_(
        model, shuffled, **(known if which else {"layers": "all", "count": asked.layers}),
        settings=settings, folder=asked.work / "-".join(map(str, ("tuned", *known_as))),
        attention=asked.attention,
        tell=lambda step, steps, text: print(f"{step}/{steps} {text}", flush=True),
    )  # fmt: skip
    return places(model)


def fine_tune(model: Any, train: list[Batch], steps: int, lr: float, seed: int) -> None:
    torch.manual_seed(seed)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=steps, pct_start=0.1)
    order: list[int] = []
    draw = random.Random(seed)
    for _ in range(steps):
        order = order or draw.sample(range(len(train)), len(train))
        loss = model(**train[order.pop()]).loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()


@torch.no_grad()
def accuracy(model: Any, test: list[Batch]) -> float:
    model.eval()
    right = sum(int((model(**b).logits.argmax(-1) == b["labels"]).sum()) for b in test)
    return right / sum(len(b["labels"]) for b in test)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument(
        "--models",
        nargs="+",
        default=["original", "adapted"],
        choices=["original", "adapted", "converted", "silenced"],
    )
    parser.add_argument("--layerwise", type=int, default=600)
    parser.add_argument("--adapt-steps", type=int, default=300)
    parser.add_argument("--adapt-lr", type=float, default=1e-4)
    parser.add_argument("--attention", default="primal", help="what adapted attentions become")
    parser.add_argument("--which", type=int, nargs="*", default=[], help="the blocks of a plan")
    parser.add_argument("--work", type=Path, default=Path("adapted"))
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--lr", type=float, default=2e-4)
    parser.add_argument("--test", type=int, default=5001, help="reactions of part b")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    words = (asked.model / "vocab.txt").read_text().splitlines()
    vocabulary = {word: number for number, word in enumerate(words)}
    part_a = read(asked.data / "uspto50k_a.tsv.gz", vocabulary, 5001)
    part_b = read(asked.data / "uspto50k_b.tsv.gz", vocabulary, asked.test)
    train, test = batches(part_a, 16), batches(part_b, 32)
    often = Counter(label for _, label in part_a).most_common(1)[0][0]
    majority = sum(label == often for _, label in part_b) / len(part_b)
    known = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    encoder, which = None, list[int]()
    if not {"original", "adapted"}.issuperset(asked.models):
        encoder, which = adapted(asked, vocabulary)
    planned: list[int] = asked.which  # else on the first fine-tuned model
    for seed in asked.seeds:
        torch.manual_seed(seed)
        base: Any = BertForSequenceClassification.from_pretrained(
            asked.model, num_labels=10, weights_only=True
        ).eval()
        for kind in asked.models:
            case = {
                "model": kind, "layers": asked.layers, "seed": seed, "steps": asked.steps,
                "lr": asked.lr, "test": len(part_b),
                **({"which": which} if kind in ("converted", "silenced") else {}),
                **({"adapted": asked.adapt_steps} if kind in ("converted", "adapted") else {}),
                **({"adapt lr": asked.adapt_lr, "attention": asked.attention}
                   if kind == "adapted" else {}),
            }  # fmt: skip
            lines = ({"attention": "primal"} | json.loads(line) for line in known)
            if same := [line for line in lines if case.items() <= line.items()]:
                planned = planned or (same[0]["which"] if kind == "adapted" else [])
                continue
            start = time.process_time()
            if kind in ("original", "adapted"):
                model = tuned(asked, base, train, seed)
            if kind == "adapted":
                case["original"] = accuracy(model, test)
                planned = adapt_to(asked, model, train, planned, seed)
                case["which"] = planned
            if kind in ("converted", "silenced"):
                model = copy.deepcopy(base)
                if kind == "converted":
                    pooler, model.bert = model.bert.pooler, copy.deepcopy(encoder)
                    model.bert.pooler = pooler
                for place in which if kind == "silenced" else ():
                    dense = model.bert.encoder.layer[place].attention.output.dense
                    dense.weight.requires_grad_(False).zero_()
                fine_tune(model, train, asked.steps, asked.lr, seed)
            line = {
                **case, "accuracy": accuracy(model, test), "majority": majority,
                "CPU seconds": round(time.process_time() - start),
            }  # fmt: skip
            print(json.dumps(line), flush=True)
            with open(RESULTS, "a") as file:
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
