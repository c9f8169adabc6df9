"""How many calls of a model an explanation takes, by the order in which words are removed.

    python benchmarks/explain.py planted --cases 200
    python benchmarks/explain.py imdb --data FOLDER --reviews 200 --attention softmax primal

`planted`: the class is 1 where token 1 or token 2 is in the sequence. Cases have both, once each,
so that the smallest set whose removal changes the class is exactly this pair. `imdb`: words of
reviews (the labelled IMDB set, `aclImdb_v1_labelled.tar.xz` or the folder aclImdb in --data), a
small classifier trained on 10,000 training reviews, test reviews of at most 200 words that it has
right. Every order gets the same cases and the same budget of 500 sets of at most 3 words; a case
that is not explained counts 500 calls. Differences are paired, with a bootstrap interval and
Wilcoxon's signed-rank test.

A line a case goes to `benchmarks/results/explain_<task>_<attention>.jsonl`; a run that is
interrupted continues there.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from scipy.stats import wilcoxon
from torch import Tensor, nn

import primal_attention as pa
from primal_attention.models import SequenceClassifier
from primal_attention.tasks.lra.text import find, source

RESULTS = Path(__file__).parent / "results"
ORDERS = ("graph", "greedy", "attention", "gradient", "random")
WORDS, VOCABULARY, BUDGET = 200, 8000, 500


def classifier(vocabulary: int, length: int, attention: str) -> SequenceClassifier:
    torch.manual_seed(0)
    return SequenceClassifier(
        classes=2, vocabulary=vocabulary, max_length=length, attention=(attention, attention),
        width=64, heads=4, feedforward=128, dropout=0.1, norm="pre",
    )  # fmt: skip


def learn(model: nn.Module, batches: Iterator[tuple[Tensor, Tensor, Tensor]], steps: int) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    model.train()
    for step in range(steps):
        x, padding, y = next(batches)
        schedule(optimizer, step, steps)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x, padding), y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.eval()


def schedule(optimizer: torch.optim.Optimizer, step: int, steps: int) -> None:
    """Up over 50 steps, then down to zero."""
    for group in optimizer.param_groups:
        group["lr"] = 1e-3 * min(1.0, (step + 1) / 50) * (1 - step / steps)


# -- the planted pair ------------------------------------------------------------------------------

LENGTH, TOKENS = 24, 40


def planted_batch(generator: torch.Generator, size: int, both: bool) -> tuple[Tensor, Tensor]:
    """Tokens from 3 on; in positive cases 1, 2, or both at random places."""
    x = torch.randint(3, TOKENS, (size, LENGTH), generator=generator)
    y = torch.ones(size) if both else (torch.rand(size, generator=generator) < 0.5)
    for row in y.nonzero()[:, 0].tolist():
        places = torch.randperm(LENGTH, generator=generator)[:2]
        x[row, places] = torch.tensor([1, 2])
        drop = 2 if both else int(torch.randint(3, (1,), generator=generator))
        if drop < 2:
            x[row, places[drop]] = 3 + drop
    return x, y.long()


def planted(attention: str, count: int) -> tuple[nn.Module, list[Any]]:
    generator = torch.Generator().manual_seed(0)

    def batches() -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        while True:
            x, y = planted_batch(generator, 64, both=False)
            yield x, torch.zeros_like(x, dtype=torch.bool), y

    model = classifier(TOKENS, LENGTH, attention)
    learn(model, batches(), 400)
    x, y = planted_batch(torch.Generator().manual_seed(1), 2000, both=False)
    with torch.no_grad():
        print(f"{attention}: accuracy {float((model(x).argmax(1) == y).float().mean()):.4f}")
    cases, _ = planted_batch(torch.Generator().manual_seed(2), count, both=True)
    return model, [(one[None], sorted(((one == 1) | (one == 2)).nonzero()[:, 0].tolist()))
                   for one in cases]  # fmt: skip


# -- reviews ---------------------------------------------------------------------------------------


def words_of(review: Any) -> list[str]:
    text = review.read_bytes() if isinstance(review, Path) else review
    return re.findall(r"[a-z']+", text.decode(errors="replace").lower().replace("<br />", " "))


def reviews(folder: Path, split: str) -> list[tuple[list[str], int]]:
    place = find(folder)[split]
    return [(words_of(text), label) for text, label in source(place, split).items()]


def drawn_reviews(folder: Path, work: Path) -> dict[str, Any]:
    """The first words of 10,000 training and 4,000 test reviews, with their labels."""
    stored = work / "imdb-words.json"
    if not stored.exists():
        work.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(0)
        parts: dict[str, Any] = {}
        for split, most in (("train", 10_000), ("test", 4_000)):
            found = reviews(folder, split)
            chosen = rng.permutation(len(found))[:most]
            parts[split] = [(found[i][0][: WORDS + 1], found[i][1]) for i in chosen]
        stored.write_text(json.dumps(parts))
    found_parts: dict[str, Any] = json.loads(stored.read_text())
    return found_parts


def encoder_of(parts: dict[str, Any]) -> Any:
    """Words to numbers: 0 is padding, 1 a word that is not among the most frequent."""
    counts = Counter(word for words, _ in parts["train"] for word in words)
    known = {word: n + 2 for n, (word, _) in enumerate(counts.most_common(VOCABULARY - 2))}
    return lambda words: [known.get(word, 1) for word in words[:WORDS]] or [1]


def encoded_reviews(folder: Path, work: Path) -> tuple[list[Any], list[Any]]:
    """(numbers, label) of the training and of the test reviews."""
    parts = drawn_reviews(folder, work)
    encode = encoder_of(parts)
    return tuple([(encode(w), label) for w, label in parts[k]] for k in ("train", "test"))  # type: ignore[return-value]


def imdb(attention: str, folder: Path, count: int, work: Path) -> tuple[nn.Module, list[Any]]:
    """The trained model, and test cases that it has right."""
    parts = drawn_reviews(folder, work)
    encode = encoder_of(parts)
    train = [(encode(words), label) for words, label in parts["train"]]
    model = classifier(VOCABULARY, WORDS, attention)
    weights = work / f"imdb-{attention}.pt"
    if weights.exists():
        model.load_state_dict(torch.load(weights, weights_only=True))
        model.eval()
    else:
        learn(model, text_batches(train), 3 * len(train) // 32)
        torch.save(model.state_dict(), weights)
    cases, right, asked = [], 0, 0
    with torch.no_grad():
        for words, label in parts["test"]:
            ids = torch.tensor([encode(words)])
            correct = int(model(ids).argmax()) == label
            right, asked = right + correct, asked + 1
            if correct and 20 <= len(words) <= WORDS:
                cases.append((ids, words))
            if asked >= 1500 and len(cases) >= count:
                break
    print(f"{attention}: accuracy {right / asked:.4f} on {asked} test reviews")
    return model, cases[:count]


def text_batches(
    cases: list[tuple[list[int], int]], seed: int = 0
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    rng = np.random.default_rng(seed)
    while True:
        order = sorted(rng.permutation(len(cases)).tolist(), key=lambda i: len(cases[i][0]) // 20)
        parts = [order[i : i + 32] for i in range(0, len(order), 32)]
        for at in rng.permutation(len(parts)):
            part = [cases[i] for i in parts[at]]
            x = padded([ids for ids, _ in part])
            yield x, x == 0, torch.tensor([label for _, label in part])


def padded(rows: list[list[int]]) -> Tensor:
    x = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
    for place, ids in zip(x, rows, strict=True):
        place[: len(ids)] = torch.tensor(ids)
    return x


# -- the comparison --------------------------------------------------------------------------------


def compare(name: str, model: nn.Module, cases: list[Any], *, pairs: bool) -> None:
    """A line a case, then the table."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"explain_{name}.jsonl"
    lines = [json.loads(one) for one in path.read_text().splitlines()] if path.exists() else []
    for number in range(len(lines), len(cases)):
        inputs, what = cases[number]
        line: dict[str, Any] = {"case": number, "length": inputs.shape[1]}
        for order in ORDERS:
            begun = time.process_time()
            found = pa.explain(model, inputs, order=order, budget=BUDGET, most=3, seed=number)
            removed = found.removals[0].positions if found.removals else ()
            line[order] = {
                "calls": found.calls if found.removals else BUDGET,
                "size": found.size,
                "seconds": round(time.process_time() - begun, 3),
                "removed": list(removed) if pairs else [what[i] for i in removed],
            }
            if pairs:
                line[order]["right"] = list(removed) == what
        lines.append(line)
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")
    table(name, lines[: len(cases)], pairs)


def table(name: str, lines: list[dict[str, Any]], pairs: bool) -> None:
    print(f"{name}: {len(lines)} cases, lengths {np.mean([one['length'] for one in lines]):.0f}")
    first = np.array([one["graph"]["calls"] for one in lines], dtype=float)
    rng = np.random.default_rng(0)
    for order in ORDERS:
        calls = np.array([one[order]["calls"] for one in lines], dtype=float)
        sizes = [one[order]["size"] for one in lines]
        known = [size for size in sizes if size]
        text = (
            f"  {order:<10} calls {calls.mean():7.1f} (median {np.median(calls):5.0f}), explained "
            f"{len(known) / len(lines):.3f}, size {np.mean(known):.2f}"
        )
        if pairs:
            text += f", the pair {np.mean([one[order]['right'] for one in lines]):.3f}"
        if order != "graph":
            gap = first - calls
            drawn = [rng.choice(gap, len(gap)).mean() for _ in range(2000)]
            low, high = np.quantile(drawn, [0.025, 0.975])
            p = wilcoxon(gap).pvalue if gap.any() else 1.0
            text += f"; graph minus it {gap.mean():.1f} [{low:.1f}, {high:.1f}], p {p:.2g}"
        print(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("task", choices=("planted", "imdb"))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--attention", nargs="+", default=["softmax", "primal"])
    parser.add_argument("--cases", "--reviews", type=int, default=200)
    parser.add_argument("--work", type=Path, default=Path("explained"))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    for attention in asked.attention:
        if asked.task == "planted":
            model, cases = planted(attention, asked.cases)
        else:
            model, cases = imdb(attention, asked.data, asked.cases, asked.work)
        compare(f"{asked.task}_{attention}", model, cases, pairs=asked.task == "planted")


if __name__ == "__main__":
    main()
