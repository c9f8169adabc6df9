"""Five ways to honest probabilities: which of them is better for sure?

    python benchmarks/calibration.py --data FOLDER --sets UWaveGestureLibrary Handwriting --seeds 5
    python benchmarks/calibration.py --data FOLDER --sets digits imdb cifar10 --seeds 5

--data: a folder with the .ts files of the sets (see `primal data`), with the labelled IMDB
reviews (`aclImdb_v1_labelled.tar.xz` or the folder aclImdb), and with CIFAR-10's batches (`primal
data get cifar10`). A fifth of the training cases is held out for the temperature; all methods learn
from the rest, with one network each.

Series: the network of `PrimalFormerClassifier(ensemble="net")`, the official test set. digits:
scikit-learn's 1,797 images of 8 x 8 as sequences of 8 rows, two fifths for the test. imdb: the
first 200 words of 10,000 training and 2,000 test reviews, drawn at random. cifar10: 10,000 training
and 2,000 test images, drawn at random, as sequences of 64 patches. All three: two primal layers of
width 64.

as it is: one network. temperature: the same with a temperature from the held-out cases. dropout:
the mean of 16 draws with dropout. readout: a network with a Gaussian on W_c of its last layer, the
mean of 16 draws. ensemble: the mean of the seeds. Figures of the first four are means over seeds;
differences to "as it is" are paired over test cases, with 95 % intervals of a bootstrap. Strange:
test cases backwards (images upside down), told from the others by entropy (AUROC).

The logits of every network are kept in --work, so that a run that is interrupted continues; the
table of a set goes to `benchmarks/results/calibration_<set>.json`.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from explain import VOCABULARY, WORDS, encoded_reviews, padded, schedule, text_batches
from torch import Tensor, nn

import primal_attention as pa
from primal_attention import calibration
from primal_attention.models import SequenceClassifier
from primal_attention.tasks import get_task
from primal_attention.tasks.cifar10 import read_cifar10
from primal_attention.tasks.series import stratified_split

RESULTS = Path(__file__).parent / "results"
DRAWS, BATCH = 16, 32
PARTS = ("held_out", "test", "strange")

Calls = Callable[[str], Iterator[tuple[Tensor, Tensor]]]  # inputs and padding of a part, in batches


class Case(NamedTuple):
    """A set: the labels of its parts, and a network of a seed, with or without a Gaussian readout,
    in evaluation mode, with what it is called with."""

    labels: dict[str, Any]
    learn: Callable[[str, int], tuple[nn.Module, Calls]]


# -- series ----------------------------------------------------------------------------------------


def series(name: str, folder: Path) -> Case:
    parts = get_task(f"uea/{name}").load(folder)
    train, labels = parts["train"].series, parts["train"].labels
    kept, held_out = stratified_split(labels, 0.2, 0)
    test = parts["test"].series
    given = {
        "held_out": [train[i] for i in held_out],
        "test": test,
        "strange": [x[::-1].copy() for x in test],
    }

    def learn(uncertainty: str, seed: int) -> tuple[nn.Module, Calls]:
        fitted = pa.PrimalFormerClassifier(
            ensemble="net", networks=1, folds=0, uncertainty=uncertainty, random_state=seed
        ).fit([train[i].T for i in kept], labels[kept])
        ensemble = fitted.ensemble_

        def calls(part: str) -> Iterator[tuple[Tensor, Tensor]]:
            data = ensemble._data(ensemble._drawn(given[part]))
            for first in range(0, len(data), BATCH):
                batch = data.__getitems__(list(range(first, min(first + BATCH, len(data)))))
                yield batch.inputs.double(), batch.padding

        return fitted.model_.double(), calls

    found = {"held_out": labels[held_out], "test": parts["test"].labels}
    return Case(found, learn)


# -- images and reviews ----------------------------------------------------------------------------


def digits() -> Case:
    from sklearn.datasets import load_digits

    found = load_digits()
    x = torch.from_numpy(found.images).float() / 16
    y = found.target.astype(np.int64)
    train, test = stratified_split(y, 0.4, 0)
    kept, held_out = (train[i] for i in stratified_split(y[train], 0.2, 0))
    return of_images(x, y, kept, held_out, x[test], x[test].flip(1), y[test])


def of_images(
    x: Tensor, y: Any, kept: Any, held_out: Any, test: Tensor, strange: Tensor, labels: Any
) -> Case:
    """Training images as sequences (n, length, channels) with classes y, which are kept and which
    held out; those of the test, and the classes of these."""
    given = {"held_out": x[held_out], "test": test, "strange": strange}

    def batches(seed: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        rng = np.random.default_rng(seed)
        while True:
            rows = rng.choice(kept, 64)
            padding = torch.zeros(64, x.shape[1], dtype=torch.bool)
            yield x[rows], padding, torch.from_numpy(y[rows])

    def calls(part: str) -> Iterator[tuple[Tensor, Tensor]]:
        for part_of in given[part].split(256):
            yield part_of, torch.zeros(part_of.shape[:2], dtype=torch.bool)

    def learn(uncertainty: str, seed: int) -> tuple[nn.Module, Calls]:
        torch.manual_seed(seed)
        model = network(classes=10, channels=x.shape[2], max_length=x.shape[1])
        return trained(model, uncertainty, batches(seed), 800, len(kept)), calls

    return Case({"held_out": y[held_out], "test": labels}, learn)


def imdb(folder: Path, work: Path) -> Case:
    train, test = encoded_reviews(folder, work)
    cut = len(train) // 5
    held_out, kept, test = train[:cut], train[cut:], test[:2000]
    given = {
        "held_out": held_out,
        "test": test,
        "strange": [(ids[::-1], label) for ids, label in test],
    }

    def calls(part: str) -> Iterator[tuple[Tensor, Tensor]]:
        for first in range(0, len(given[part]), BATCH):
            x = padded([ids for ids, _ in given[part][first : first + BATCH]])
            yield x, x == 0

    def learn(uncertainty: str, seed: int) -> tuple[nn.Module, Calls]:
        torch.manual_seed(seed)
        model = network(classes=2, vocabulary=VOCABULARY, max_length=WORDS)
        steps = 3 * len(kept) // BATCH
        return trained(model, uncertainty, text_batches(kept, seed), steps, len(kept)), calls

    labels = {"held_out": held_out, "test": test}
    return Case({k: np.array([one for _, one in v]) for k, v in labels.items()}, learn)


def cifar10(folder: Path) -> Case:
    rng = np.random.default_rng(0)
    drawn = {}
    for split, most in (("train", 10_000), ("test", 2_000)):
        images, labels = read_cifar10(folder, split)
        chosen = np.sort(rng.permutation(len(labels))[:most])
        drawn[split] = torch.from_numpy(images[chosen]).float() / 128 - 1, labels[chosen]
    x, y = drawn["train"]
    kept, held_out = stratified_split(y, 0.2, 0)
    test, labels = drawn["test"]
    return of_images(patches(x), y, kept, held_out, patches(test), patches(test.flip(1)), labels)


def patches(images: Tensor) -> Tensor:
    """(n, 32, 32, 3) as 64 patches of 4 x 4: (n, 64, 48)."""
    n = len(images)
    return images.view(n, 8, 4, 8, 4, 3).transpose(2, 3).reshape(n, 64, 48)


def network(**shape: Any) -> SequenceClassifier:
    return SequenceClassifier(
        **shape, attention=("primal", "primal"), width=64, heads=4, feedforward=128, dropout=0.1,
        norm="pre",
    )  # fmt: skip


def trained(
    model: nn.Module,
    uncertainty: str,
    batches: Iterator[tuple[Tensor, Tensor, Tensor]],
    steps: int,
    cases: int,
) -> nn.Module:
    if uncertainty == "readout":
        pa.variational_(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    model.train()
    for step in range(steps):
        x, padding, y = next(batches)
        schedule(optimizer, step, steps)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x, padding), y)
        if uncertainty == "readout":
            loss = loss + pa.kl_loss(model) / cases
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model.eval()


# -- the comparison --------------------------------------------------------------------------------


def outputs(model: nn.Module, calls: Calls, part: str, kind: str) -> np.ndarray[Any, Any]:
    """Logits (draws, cases, classes): one, or several where something is drawn."""
    found = []
    for call in calls(part):
        if kind == "plain":
            with torch.no_grad():
                found.append(model(*call)[None])
        else:
            found.append(pa.draws(model, call, DRAWS, kind=kind))
    return torch.cat(found, 1).double().numpy()


def networks(name: str, case: Case, seed: int, work: Path) -> dict[str, Any]:
    """The logits of the two networks of a seed, computed once."""
    work.mkdir(parents=True, exist_ok=True)
    for uncertainty in ("none", "readout"):
        path = work / f"{name}-{seed}-{uncertainty}.npz"
        if path.exists():
            continue
        model, calls = case.learn(uncertainty, seed)
        found = {}
        for kind in ("readout",) if uncertainty == "readout" else ("plain", "dropout"):
            for part in PARTS if kind == "plain" else PARTS[1:]:
                found[f"{kind}_{part}"] = outputs(model, calls, part, kind)
        whole = path.with_suffix(".part.npz")
        np.savez_compressed(whole, **found)
        whole.replace(path)
    files = [np.load(work / f"{name}-{seed}-{u}.npz") for u in ("none", "readout")]
    return {key: value for file in files for key, value in file.items()}


def judge(name: str, case: Case, found: list[dict[str, Any]]) -> dict[str, Any]:
    labels, held_out = case.labels["test"], case.labels["held_out"]
    temperatures = [
        calibration.fit_temperature(one["plain_held_out"][0], held_out) for one in found
    ]

    def of(part: str) -> dict[str, Any]:
        plain = [calibration.softmax(one[f"plain_{part}"][0]) for one in found]
        mean = {
            kind: [
                calibration.ensemble(calibration.softmax(one[f"{kind}_{part}"])) for one in found
            ]
            for kind in ("dropout", "readout")
        }
        tempered = [
            calibration.tempered(one[f"plain_{part}"][0], t)
            for one, t in zip(found, temperatures, strict=True)
        ]
        return {
            "as it is": plain, "temperature": tempered, **mean,
            "ensemble": [calibration.ensemble(plain)],
        }  # fmt: skip

    test, strange = of("test"), of("strange")
    first = np.stack(test["as it is"])
    rows: dict[str, Any] = {}
    for method, p in test.items():
        differences = calibration.compare(first, np.stack(p), labels)
        aurocs = [
            calibration.out_of_distribution(a, b, resamples=0).value
            for a, b in zip(p, strange[method], strict=True)
        ]
        rows[method] = {
            "figures": {
                k: vars(v) for k, v in calibration.measure(np.stack(p), labels).figures.items()
            },
            "differences": {k: vars(v) | {"sure": v.sure} for k, v in differences.items()},
            "strange_by_seed": aurocs,
        }
    return {"set": name, "seeds": len(found), "temperatures": temperatures, "methods": rows}


SCORES = ("accuracy", "ece", "nll", "brier", "aurc")


def show(found: dict[str, Any]) -> str:
    """Two tables in Markdown: the figures, and their differences to the network as it is, in bold
    where the interval leaves out 0."""

    def within(one: dict[str, float], form: str = "") -> str:
        return f"{one['value']:{form}.3f} [{one['low']:{form}.3f}, {one['high']:{form}.3f}]"

    methods = found["methods"]
    figures = {
        method: [*(within(row["figures"][key]) for key in SCORES),
                 f"{np.mean(row['strange_by_seed']):.3f}"]
        for method, row in methods.items()
    }  # fmt: skip
    differences = {}
    for method, row in list(methods.items())[1:]:
        gaps = [row["differences"][key] for key in SCORES]
        differences[method] = [
            f"**{within(gap, '+')}**" if gap["sure"] else within(gap, "+") for gap in gaps
        ]
    lines = [f"### {found['set']}, {found['seeds']} seeds"]
    for first, more, rows in (
        ("method", ["strange"], figures),
        ("minus the network as it is", [], differences),
    ):
        lines += ["", f"| {' | '.join([first, *SCORES, *more])} |"]
        lines.append("|---" * (1 + len(SCORES) + len(more)) + "|")
        lines += [f"| {method} | {' | '.join(cells)} |" for method, cells in rows.items()]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--sets", nargs="+", default=["UWaveGestureLibrary", "Handwriting"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--work", type=Path, default=Path("calibrated"))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    for name in asked.sets:
        case = digits() if name == "digits" else None
        if name == "imdb":
            case = imdb(asked.data, asked.work)
        if name == "cifar10":
            case = cifar10(asked.data)
        case = case or series(name, asked.data)
        found = []
        for seed in range(asked.seeds):
            found.append(networks(name, case, seed, asked.work))
            print(f"{name}, seed {seed} is done", flush=True)
            table = judge(name, case, found)
            RESULTS.mkdir(exist_ok=True)
            path = RESULTS / f"calibration_{name}.json"
            path.write_text(json.dumps(table, indent=1) + "\n")
        print(show(table))


if __name__ == "__main__":
    main()
