"""A real pretrained BERT, converted and adapted: masked accuracy on chemical reactions.

    python benchmarks/adapt_reactions.py --model FOLDER --data FOLDER --layers 1 4 6 12
    python benchmarks/adapt_reactions.py --model FOLDER --data FOLDER --layers 4 --choose plan
    python benchmarks/adapt_reactions.py --model FOLDER --data FOLDER --train 1000 --write a.npz

--model: the folder `bert_pretrained` in the wheel `rxnfp` 0.1.0 (`pip download --no-deps rxnfp`;
12 layers, width 256, a masked language model of reaction SMILES). --data: a folder with
`uspto50k_a.tsv.gz` and `uspto50k_b.tsv.gz`, which have a column `reaction`. Part a is learned from
without any label, every tenth batch of it is held out to stop by; part b is read once, at the end.
15 % of the tokens are masked. --choose: the last layers, those of a measured plan, or layers drawn
by the seed. --attention: another of the registry, to compare. Silenced: the same attentions give
nothing but their output bias.

Every line is written to `benchmarks/results/adapt_reactions.jsonl`, and what is there is not run
again. A run that is interrupted continues from `--work`, started by the same command.
"""

from __future__ import annotations

import argparse
import copy
import csv
import gzip
import itertools
import json
import os
import random
import re
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from torch import Tensor, nn
from transformers import BertForMaskedLM

import primal_attention as pa
from primal_attention.train.adapt import AdaptSettings

RESULTS = Path(__file__).parent / "results" / "adapt_reactions.jsonl"
TOKENS = re.compile(
    r"(\[[^\]]+]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\(|\)|\.|=|#|-|\+|\\|\/|:|~|@|\?|>>?|\*|\$|"
    r"%[0-9]{2}|[0-9])"
)
LONGEST = 160  # tokens; a few reactions are longer and are left out


def read(path: Path, vocabulary: dict[str, int], count: int) -> list[list[int]]:
    """The token numbers of the first reactions of a part."""
    with gzip.open(path, "rt") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    unknown = vocabulary["[UNK]"]
    found = []
    for row in rows[:count]:
        words = ["[CLS]", *TOKENS.findall(row["reaction"]), "[SEP]"]
        found.append([vocabulary.get(word, unknown) for word in words])
    return [ids for ids in found if len(ids) <= LONGEST]


def batches(
    sequences: list[list[int]],
    size: int,
    vocabulary: dict[str, int],
    seed: int,
    masks: int | None = None,
) -> tuple[list[dict[str, Tensor]], list[Tensor]]:
    """Masked batches of similar lengths, in random order, and the tokens that were there, -100
    where nothing was masked. masks: the seed of what is masked, if it is not that of the order."""
    draw = torch.Generator().manual_seed(seed if masks is None else masks)
    ordered = sorted(sequences, key=len)
    inputs, answers = [], []
    for start in range(0, len(ordered), size):
        part = ordered[start : start + size]
        ids = torch.zeros(len(part), max(map(len, part)), dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, sequence in enumerate(part):
            ids[row, : len(sequence)] = torch.tensor(sequence)
            mask[row, : len(sequence)] = 1
        special = (ids == vocabulary["[CLS]"]) | (ids == vocabulary["[SEP]"]) | (mask == 0)
        chosen = (torch.rand(ids.shape, generator=draw) < 0.15) & ~special
        shown = ids.masked_fill(chosen, vocabulary["[MASK]"])
        inputs.append({"input_ids": shown, "attention_mask": mask})
        answers.append(ids.masked_fill(~chosen, -100))
    order = list(range(len(inputs)))
    random.Random(seed).shuffle(order)
    return [inputs[i] for i in order], [answers[i] for i in order]


@torch.no_grad()
def right(model: nn.Module, inputs: list[dict[str, Tensor]], answers: list[Tensor]) -> Tensor:
    """(reactions, 2): masked tokens that the model finds, and all of them, reaction by reaction."""
    model.eval()
    rows = []
    for batch, answer in zip(inputs, answers, strict=True):
        found = model(**batch).logits.argmax(-1)
        masked = answer >= 0
        rows.append(torch.stack([((found == answer) & masked).sum(1), masked.sum(1)], 1))
    return torch.cat(rows).double()


def accuracy(found: Tensor) -> float:
    """Share of the masked tokens that were found."""
    return float(found[:, 0].sum() / found[:, 1].sum())


def interval(found: Tensor, other: Tensor, draws: int = 1000) -> list[float]:
    """95 % of the difference of two accuracies, over reactions drawn with replacement."""
    generator = torch.Generator().manual_seed(0)
    picks = torch.randint(len(found), (draws, len(found)), generator=generator)
    lost = (found[:, 0] - other[:, 0])[picks].sum(1) / found[:, 1][picks].sum(1)
    return [round(float(q), 5) for q in lost.quantile(torch.tensor([0.025, 0.975]).double())]


def silenced(model: nn.Module, layers: list[int]) -> nn.Module:
    """The dumb baseline: these attentions see nothing."""
    quiet: Any = copy.deepcopy(model)
    for place in layers:
        quiet.bert.encoder.layer[place].attention.output.dense.weight.data.zero_()
    return quiet


def chosen(
    model: Any, how: str, count: int, inputs: list[Any], seed: int, options: dict[str, Any]
) -> list[int]:
    """The layers to convert, by number."""
    every = list(range(len(model.bert.encoder.layer)))
    if how == "last" or count == len(every):
        return every[-count:]
    if how == "random":
        return sorted(random.Random(f"{seed} {count}").sample(every, count))
    found = pa.plan(model, batches=inputs[:8], count=count, **options)
    print(found, flush=True)
    return sorted(int(row.name.split("layer.")[1].split(".")[0]) for row in found.changes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--layers", type=int, nargs="+", default=[1, 4, 6, 12])
    parser.add_argument("--choose", nargs="+", default=["last"], choices=["last", "plan", "random"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--attention", default="primal", help="what the attentions become")
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--feature-map", default="elu")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--layerwise", type=int, default=300)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--converted", type=float, default=1.0, help="their lr, in multiples")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--train", type=int, default=5001, help="reactions of part a")
    parser.add_argument("--maskings", type=int, default=1, help="of each reaction of part a")
    parser.add_argument("--hidden", type=float, default=1.0, help="weight of the blocks' errors")
    parser.add_argument("--remember", type=float, default=2.0, help="gigabytes")
    parser.add_argument("--test", type=int, default=5001, help="reactions of part b")
    parser.add_argument("--every", type=int, default=100)
    parser.add_argument("--one-by-one", action="store_true", help="from the end, equal steps each")
    parser.add_argument("--write", type=Path, help="only write part a as batches: FILE.npz")
    parser.add_argument("--work", type=Path, default=Path("adapted"))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    lines = (asked.model / "vocab.txt").read_text().splitlines()
    vocabulary = {word: number for number, word in enumerate(lines)}
    base = BertForMaskedLM.from_pretrained(asked.model, weights_only=True).eval()
    part_a = read(asked.data / "uspto50k_a.tsv.gz", vocabulary, asked.train)
    part_b = read(asked.data / "uspto50k_b.tsv.gz", vocabulary, asked.test)
    learned, answers = batches(part_a, asked.batch_size, vocabulary, seed=1)
    held = learned[::10], answers[::10]
    taught = [batch for place, batch in enumerate(learned) if place % 10]
    for masks in range(2, asked.maskings + 1):
        again, _ = batches(part_a, asked.batch_size, vocabulary, seed=1, masks=100 * masks)
        taught += [batch for place, batch in enumerate(again) if place % 10]
    if asked.write is not None:
        whole, _ = batches(part_a, len(part_a), vocabulary, seed=1)
        order = torch.randperm(len(part_a), generator=torch.Generator().manual_seed(1))
        np.savez_compressed(asked.write, **{name: t[order].numpy() for name, t in whole[0].items()})
        return
    test = batches(part_b, 32, vocabulary, seed=2)
    original = None
    options: dict[str, Any] = {"rank": asked.rank, "feature_map": asked.feature_map}
    if asked.attention != "primal":
        options = {"attention": asked.attention}
    for count, how, seed in itertools.product(asked.layers, asked.choose, asked.seeds):
        turns = count if asked.one_by_one else 1
        settings = AdaptSettings(
            steps=asked.steps // turns, layerwise=asked.layerwise, lr=asked.lr,
            converted=asked.converted, every=asked.every // turns, seed=seed, hidden=asked.hidden,
            remember=asked.remember,
        )  # fmt: skip
        case = {
            "layers": count, "choose": how, "turns": turns, "seed": seed, **options,
            "steps": asked.steps, "lr": asked.lr, "converted lr": asked.converted * asked.lr,
            "layerwise": asked.layerwise, "maskings": asked.maskings, "hidden": asked.hidden,
            "train": len(part_a), "test": len(part_b),
        }  # fmt: skip
        if any(case.items() <= line.items() for line in finished()):
            continue
        start = time.process_time()
        which = chosen(base, how, count, learned, seed, options)
        model = copy.deepcopy(base)
        place = rf"layer\.({'|'.join(map(str, which))})\."
        converted = pa.convert_(copy.deepcopy(base), layers=place, **options)
        for turn in range(turns):
            last = rf"layer\.{which[-1 - turn]}\." if asked.one_by_one else place
            named = (
                count,
                how,
                turn,
                seed,
                *options.values(),
                asked.steps,
                asked.lr,
                asked.converted,
                asked.maskings,
                asked.hidden,
            )
            name = "-".join(map(str, named))
            found = pa.adapt_(
                model, taught, layers=last, settings=settings, folder=asked.work / name,
                teacher=base, held_out=held[0], **options,
                quality=lambda each: accuracy(right(each, *held)),
                tell=lambda step, steps, text: print(f"{step}/{steps} {text}", flush=True),
            )  # fmt: skip
        original = right(base, *test) if original is None else original
        adapted = right(model, *test)
        line = {
            **case, "which": which, "best": found.best, "original": accuracy(original),
            "silenced": accuracy(right(silenced(base, which), *test)),
            "converted": accuracy(right(converted, *test)), "adapted": accuracy(adapted),
            "difference": interval(adapted, original),
            "agreement held out": found.after.agreement,
            "CPU seconds": round(time.process_time() - start),
        }  # fmt: skip
        print(json.dumps(line), flush=True)
        with open(RESULTS, "a") as file:
            file.write(json.dumps(line) + "\n")


def finished() -> list[dict[str, Any]]:
    return (
        [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    )


if __name__ == "__main__":
    main()
