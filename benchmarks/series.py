"""Classifiers of time series side by side: accuracy, log-loss, seconds to fit and to predict.

    python benchmarks/series.py --data-dir FOLDER                      # all sets that are there
    python benchmarks/series.py BasicMotions JapaneseVowels --seeds 0-4

Needs aeon for the classifiers beside ours. Training sets are fitted as they are and test sets are
used once, with the defaults of every classifier. aeon's take series of one length: shorter ones are
filled with zeros at their end. One thread; aeon's kernels are compiled before the clock starts.
Every line is also written to `benchmarks/results/series.jsonl` as soon as it is known.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")

import numpy as np
import torch

import primal_attention as pa
from primal_attention.cli.options import parse_seeds
from primal_attention.tasks import get_task
from primal_attention.tasks.series import SeriesSet

RESULTS = Path(__file__).parent / "results" / "series.jsonl"
SETS = (
    "BasicMotions", "Handwriting", "JapaneseVowels", "SpokenArabicDigits", "UWaveGestureLibrary",
)  # fmt: skip


def ours(seed: int) -> Any:
    return pa.PrimalRocketClassifier(random_state=seed, n_jobs=1)


def multirocket_hydra(seed: int) -> Any:
    from aeon.classification.convolution_based import MultiRocketHydraClassifier

    return MultiRocketHydraClassifier(random_state=seed)


def minirocket(seed: int) -> Any:
    from aeon.classification.convolution_based import MiniRocketClassifier

    return MiniRocketClassifier(random_state=seed)


CLASSIFIERS: dict[str, Callable[[int], Any]] = {
    "PrimalRocket": ours,
    "MultiRocketHydra": multirocket_hydra,
    "MiniRocket": minirocket,
}


def filled(s: SeriesSet, length: int) -> Any:
    """(cases, channels, length), zeros behind the end of a series."""
    X = np.zeros((len(s), s.channels, length))
    for x, values in zip(X, s.series, strict=True):
        x[:, : len(values)] = values.T
    return X


def measure(name: str, train: SeriesSet, test: SeriesSet, seed: int) -> dict[str, Any]:
    """One classifier, fitted and judged; seconds of the processor, which other work on the machine
    disturbs less than those of the clock."""
    if name == "PrimalRocket":
        X, X_test = ([x.T for x in s.series] for s in (train, test))
    else:
        length = max(9, int(train.lengths.max()), int(test.lengths.max()))
        X, X_test = (filled(s, length) for s in (train, test))
    classifier = CLASSIFIERS[name](seed)
    start = time.process_time()
    classifier.fit(X, train.labels)
    fitted = time.process_time()
    predicted = classifier.predict(X_test)
    done = time.process_time()
    row: dict[str, Any] = {
        "set": train.name.split()[0],
        "classifier": name,
        "seed": seed,
        "accuracy": float((predicted == test.labels).mean()),
        "fit": round(fitted - start, 2),
        "predict": round(done - fitted, 2),
    }
    if name == "PrimalRocket":  # the others have no probabilities: theirs are 0 or 1
        found = classifier.predict_proba(X_test)
        row["log_loss"] = float(-np.log(found[np.arange(len(test)), test.labels]).mean())
    return row


def warm_up(names: list[str]) -> None:
    """Compile and import what a first fit would, for one channel and for several."""
    rng = np.random.default_rng(0)
    for channels in (1, 2):
        X, y = rng.standard_normal((8, channels, 40)), np.arange(8) % 2
        for name in names:
            CLASSIFIERS[name](0).fit(X, y).predict(X)


def table(rows: list[dict[str, Any]]) -> str:
    """Means over seeds as Markdown."""
    lines = [
        "| set | classifier | seeds | accuracy by seed | mean | fit, s | predict, s |",
        "|---|---|---|---|---|---|---|",
    ]
    for key in sorted({(row["set"], row["classifier"]) for row in rows}):
        mine = [row for row in rows if (row["set"], row["classifier"]) == key]
        mean = {k: float(np.mean([r[k] for r in mine])) for k in ("accuracy", "fit", "predict")}
        each = ", ".join(f"{100 * r['accuracy']:.1f}" for r in mine)
        lines.append(
            f"| {key[0]} | {key[1]} | {len(mine)} | {each} | {100 * mean['accuracy']:.1f} | "
            f"{mean['fit']:.1f} | {mean['predict']:.1f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("sets", nargs="*", help="default: all that are there")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--seeds", type=parse_seeds, default=[0, 1, 2])
    parser.add_argument("--classifiers", nargs="+", choices=CLASSIFIERS, default=list(CLASSIFIERS))
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    warm_up(arguments.classifiers)
    rows = []
    for name in arguments.sets or SETS:
        task = get_task(f"uea/{name}")
        if task.status(arguments.data_dir).missing:
            print(f"{name}: not here")
            continue
        splits = task.load(arguments.data_dir)
        for seed in arguments.seeds:
            for classifier in arguments.classifiers:
                rows.append(measure(classifier, splits["train"], splits["test"], seed))
                print(json.dumps(rows[-1]), flush=True)
                with arguments.output.open("a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
    print(table(rows))


if __name__ == "__main__":
    main()
