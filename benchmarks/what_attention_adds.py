"""What attention adds to the net for time series: the same net with other attentions.

    python benchmarks/what_attention_adds.py --data-dir FOLDER
    python benchmarks/what_attention_adds.py made/repetition --attention none softmax --seeds 0-1

Every run is `primal train TASK --attention ...` with the default recipe: the same stem, steps and
split for all, one test accuracy after the last step. `none` is the net without attention; all
others are compared with it seed by seed, since a seed fixes the split, the order of the batches and
the start of the parts that all nets share. One thread. Every run is written to
`benchmarks/results/what_attention_adds.jsonl` as soon as it is known, and what stands there already
is not run again; the table at the end is of the whole file.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from primal_attention.cli.settings import resolve
from primal_attention.grammar import parse_seeds
from primal_attention.runs.statistics import mean_interval
from primal_attention.tasks import get_task
from primal_attention.train import train

RESULTS = Path(__file__).parent / "results" / "what_attention_adds.jsonl"
NOTHING = "none"
TASKS = (
    "made/repetition", "uea/Handwriting", "uea/JapaneseVowels", "uea/UWaveGestureLibrary",
    "uea/BasicMotions",
)  # fmt: skip
ATTENTIONS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    NOTHING: (("none", "none"), {}),
    "softmax": (("softmax", "softmax"), {}),
    "primal tied, elu": (("primal", "primal"), {"weights": "tied", "feature_map": "elu"}),
    "linear": (("linear", "linear"), {}),
    "lka, then primal tied, elu": (("lka", "primal"), {"weights": "tied", "feature_map": "elu"}),
    "primal tied, cosine": (("primal", "primal"), {"weights": "tied", "feature_map": "cosine"}),
    "primal tied, softmax": (("primal", "primal"), {"weights": "tied", "feature_map": "softmax"}),
    "primal free, cosine": (("primal", "primal"), {"weights": "free", "feature_map": "cosine"}),
    "primal data, cosine": (("primal", "primal"), {"weights": "data", "feature_map": "cosine"}),
}


def measure(task: str, name: str, seed: int, data_dir: Path | None) -> dict[str, Any]:
    """One run from its settings to its test accuracy; seconds of the processor."""
    attention, changes = ATTENTIONS[name]
    if "primal" not in attention:
        changes = {"eta": 0.0}
    place = {} if data_dir is None else {"data_dir": str(data_dir.absolute())}
    config = resolve(task, attention, seed=seed, **changes, **place)
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        result: Any = train(config, root=folder)
    return {
        "task": task,
        "attention": name,
        "seed": seed,
        "accuracy": result.accuracy,
        "validation": result.validation_accuracy,
        "parameters": result.parameters,
        "seconds": round(time.process_time() - start, 1),
    }


def read(path: Path) -> dict[tuple[str, str, int], dict[str, Any]]:
    """What is known, by task, attention and seed."""
    lines = path.read_text().splitlines() if path.exists() else []
    rows = map(json.loads, lines)
    return {(row["task"], row["attention"], row["seed"]): row for row in rows}


def tables(known: dict[tuple[str, str, int], dict[str, Any]]) -> str:
    """Means over seeds and 95 % intervals of the paired differences, in points, as Markdown."""
    lines = []
    for task in dict.fromkeys(key[0] for key in known):
        by_name = {
            name: {seed: row for (t, n, seed), row in known.items() if (t, n) == (task, name)}
            for name in ATTENTIONS
        }
        lines += [
            f"\n### {task}\n",
            "| attention | accuracy, % | by seed | minus none, paired | parameters | CPU seconds |",
            "|---|---|---|---|---|---|",
        ]
        lines += [_row(name, rows, by_name[NOTHING]) for name, rows in by_name.items() if rows]
    return "\n".join(lines)


def _row(name: str, rows: dict[int, dict[str, Any]], nothing: dict[int, dict[str, Any]]) -> str:
    own = [100 * rows[seed]["accuracy"] for seed in sorted(rows)]
    gains = [
        100 * (rows[seed]["accuracy"] - nothing[seed]["accuracy"])
        for seed in sorted(rows.keys() & nothing.keys())
    ]
    mean, _, interval = mean_interval(gains or [0.0])
    within = "" if interval is None else f" ({interval[0]:+.1f} to {interval[1]:+.1f})"
    gain = "" if name == NOTHING else f"{mean:+.1f}{within}"
    one = next(iter(rows.values()))
    seconds = fmean(row["seconds"] for row in rows.values())
    each = ", ".join(f"{accuracy:.1f}" for accuracy in own)
    return (
        f"| {name} | {fmean(own):.1f} | {each} | {gain} | {one['parameters']:,} | {seconds:.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("tasks", nargs="*", default=TASKS, help="default: all that are there")
    parser.add_argument("--attention", nargs="+", choices=ATTENTIONS, default=list(ATTENTIONS))
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--seeds", type=parse_seeds, default=[0, 1, 2, 3, 4])
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    known = read(arguments.output)
    here = [
        task for task in arguments.tasks if not get_task(task).status(arguments.data_dir).missing
    ]
    if absent := sorted({*arguments.tasks} - {*here}):
        print(f"not here: {', '.join(absent)}")
    # seed by seed, so that what is there when it is interrupted can be compared
    for seed, task, name in product(arguments.seeds, here, arguments.attention):
        if (task, name, seed) not in known:
            row = measure(task, name, seed, arguments.data_dir)
            known[task, name, seed] = row
            print(json.dumps(row), flush=True)
            with arguments.output.open("a") as file:
                file.write(json.dumps(row) + "\n")
    print(tables(known))


if __name__ == "__main__":
    main()
