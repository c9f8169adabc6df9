"""Classifiers of time series side by side: accuracy, log-loss, seconds to fit and to predict.

    python benchmarks/series.py --data-dir FOLDER                      # all sets that are there
    python benchmarks/series.py BasicMotions JapaneseVowels --seeds 0-4
    python benchmarks/series.py --univariate --seeds 0-2               # six sets inside aeon

Needs aeon for the classifiers beside ours. Training sets are fitted as they are and test sets are
used once, with the defaults of every classifier. aeon's take series of one length: shorter ones are
filled with zeros at their end. One thread; aeon's kernels are compiled before the clock starts.
"best" and "fast" are PrimalFormerClassifier with that `ensemble`; "net" is what it would be with
`ensemble="net"`, taken from "best", so it has no seconds of its own. Every line is written to
`benchmarks/results/series.jsonl` as soon as it is known, and what stands there is not done again.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import itertools
import json
import os
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")

import numpy as np
import torch

import primal_attention as pa
from primal_attention.grammar import parse_seeds
from primal_attention.runs.statistics import mean_interval
from primal_attention.tasks import get_task
from primal_attention.tasks.series import SeriesSet
from primal_attention.tasks.uea.ts import read_ts

RESULTS = Path(__file__).parent / "results" / "series.jsonl"
SETS = (
    "BasicMotions", "JapaneseVowels", "Handwriting", "UWaveGestureLibrary", "SpokenArabicDigits",
)  # fmt: skip
UNIVARIATE = (
    "ACSF1", "ArrowHead", "GunPoint", "ItalyPowerDemand", "OSULeaf", "PickupGestureWiimoteZ",
)  # fmt: skip


def best(seed: int) -> Any:
    return pa.PrimalFormerClassifier(random_state=seed)


def fast(seed: int) -> Any:
    return pa.PrimalFormerClassifier(ensemble="fast", random_state=seed)


def multirocket_hydra(seed: int) -> Any:
    from aeon.classification.convolution_based import MultiRocketHydraClassifier

    return MultiRocketHydraClassifier(random_state=seed)


def minirocket(seed: int) -> Any:
    from aeon.classification.convolution_based import MiniRocketClassifier

    return MiniRocketClassifier(random_state=seed)


CLASSIFIERS: dict[str, Callable[[int], Any]] = {
    "best": best,
    "fast": fast,
    "MultiRocketHydra": multirocket_hydra,
    "MiniRocket": minirocket,
}


OURS = ("best", "fast")
COLUMNS = ("best", "net", "fast", "MultiRocketHydra", "MiniRocket")


def load(name: str, data_dir: Path | None) -> Mapping[str, SeriesSet] | None:
    """Training and test set, or None where they are not to be had."""
    if name in UNIVARIATE:
        import aeon

        folder = Path(aeon.__file__).parent / "datasets" / "data" / name
        parts = {"train": "TRAIN", "test": "TEST"}
        return {part: read_ts(folder / f"{name}_{file}.ts") for part, file in parts.items()}
    task = get_task(f"uea/{name}")
    return None if task.status(data_dir).missing else task.load(data_dir)


def filled(s: SeriesSet, length: int) -> Any:
    """(cases, channels, length), zeros behind the end of a series."""
    X = np.zeros((len(s), s.channels, length))
    for x, values in zip(X, s.series, strict=True):
        x[:, : len(values)] = values.T
    return X


def measure(name: str, train: SeriesSet, test: SeriesSet, seed: int) -> list[dict[str, Any]]:
    """One classifier, fitted and judged; seconds of the processor, which other work on the machine
    disturbs less than those of the clock."""
    if name in OURS:
        X, X_test = ([x.T for x in s.series] for s in (train, test))
    else:
        length = max(9, int(train.lengths.max()), int(test.lengths.max()))
        X, X_test = (filled(s, length) for s in (train, test))
    classifier = CLASSIFIERS[name](seed)
    start = time.process_time()
    classifier.fit(X, train.labels)
    fitted = time.process_time()
    answers = classifier.predict_proba(X_test) if name in OURS else classifier.predict(X_test)
    done = time.process_time()
    seconds = {"fit": round(fitted - start, 2), "predict": round(done - fitted, 2)}
    key = {"set": train.name.split()[0].partition("_TRAIN")[0], "classifier": name, "seed": seed}
    if name not in OURS:  # their probabilities are 0 or 1
        return [key | {"accuracy": float((answers == test.labels).mean())} | seconds]
    rows = [key | judged(answers, test) | seconds]
    if name == "best":
        rows[0]["mixture"] = classifier.mixture_
        alone = copy.copy(classifier)
        alone.ensemble_ = dataclasses.replace(classifier.ensemble_, frozen=None)
        rows.append(key | {"classifier": "net"} | judged(alone.predict_proba(X_test), test))
    return rows


def judged(answers: Any, test: SeriesSet) -> dict[str, float]:
    loss = -np.log(answers[np.arange(len(test)), test.labels].clip(1e-12)).mean()
    accuracy = (answers.argmax(1) == test.labels).mean()
    return {"accuracy": float(accuracy), "log_loss": float(loss)}


def warm_up(names: list[str]) -> None:
    """Compile and import what a first fit would, for one channel and for several."""
    rng = np.random.default_rng(0)
    for channels in (1, 2):
        X, y = rng.standard_normal((8, channels, 40)), np.arange(8) % 2
        for name in names:
            if name not in OURS:
                CLASSIFIERS[name](0).fit(X, y).predict(X)


def tables(rows: list[dict[str, Any]]) -> str:
    """Means over seeds with 95 % intervals and the number of seeds, sets by classifiers, as
    Markdown: accuracy in %, log-loss, processor seconds to fit and to predict."""
    names = list(dict.fromkeys([*COLUMNS, *(row["classifier"] for row in rows)]))
    names = [name for name in names if any(row["classifier"] == name for row in rows)]
    sets = [name for name in (*SETS, *UNIVARIATE) if any(row["set"] == name for row in rows)]

    def cell(name: str, of: str, key: str, factor: float, form: str) -> str:
        mine = [row for row in rows if (row["set"], row["classifier"]) == (name, of)]
        found = [factor * row[key] for row in mine if key in row]
        if not found:
            return ""
        middle, _, interval = mean_interval(found)
        within = "" if interval is None else f" ± {interval[1] - middle:{form}}"
        return f"{middle:{form}}{within} ({len(found)})"

    lines = []
    for title, key, factor, form in (
        ("accuracy, %", "accuracy", 100.0, ".1f"),
        ("log-loss", "log_loss", 1.0, ".3f"),
        ("seconds to fit", "fit", 1.0, ".1f"),
        ("seconds to predict", "predict", 1.0, ".1f"),
    ):
        own = [n for n in names if any(key in r for r in rows if r["classifier"] == n)]
        lines += ["", f"| {title} | {' | '.join(own)} |", "|---" * (len(own) + 1) + "|"]
        lines += [
            f"| {name} | {' | '.join(cell(name, of, key, factor, form) for of in own)} |"
            for name in sets
        ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("sets", nargs="*", help="default: all that are there")
    parser.add_argument("--univariate", action="store_true", help="those that aeon brings")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--seeds", type=parse_seeds, default=[0, 1, 2, 3, 4])
    parser.add_argument("--classifiers", nargs="+", choices=CLASSIFIERS, default=list(CLASSIFIERS))
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    warm_up(arguments.classifiers)
    rows = []
    if arguments.output.exists():
        rows = [json.loads(line) for line in arguments.output.read_text().splitlines()]
    known = {(row["set"], row["seed"], row["classifier"]) for row in rows}
    names = arguments.sets or (UNIVARIATE if arguments.univariate else SETS)
    for seed, name in itertools.product(arguments.seeds, names):
        splits = load(name, arguments.data_dir)
        if splits is None:
            print(f"{name}: not here")
            continue
        for classifier in arguments.classifiers:
            if (name, seed, classifier) in known:
                continue
            for row in measure(classifier, splits["train"], splits["test"], seed):
                rows.append(row)
                print(json.dumps(row), flush=True)
                with arguments.output.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    print(tables([row for row in rows if row["set"] in names]))


if __name__ == "__main__":
    main()
