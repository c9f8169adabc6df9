"""What each piece of the published set-up is worth on JapaneseVowels, by the paper's protocol.

    python benchmarks/published_pieces.py --out FOLDER                        # trains, resumes
    python benchmarks/published_pieces.py --out FOLDER --show                 # only the table
    python benchmarks/published_pieces.py --out FOLDER --models primal --pieces padding,norm

The recipe "paper" as it is, then without one piece at a time. One thread and one run at a time; a
run that was stopped goes on where it was. The accuracy is that of the best TEST epoch among those
that the published code looks at, as in print.

Every run that ends is a line of `benchmarks/results/pieces.jsonl`, and is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from primal_attention.cli.settings import resolve
from primal_attention.grammar import parse_seeds
from primal_attention.runs.statistics import mean_interval
from primal_attention.train import resume, train
from primal_attention.train.run import read_result

RESULTS = Path(__file__).parent / "results" / "pieces.jsonl"
TASK = "uea/JapaneseVowels"
MODELS = {
    "primal": ("primal", "primal"),
    "plus": ("softmax", "primal"),
    "softmax": ("softmax", "softmax"),
}
PRINTED = {"primal": 98.4, "plus": 98.9, "softmax": 98.7}
PIECES: dict[str, dict[str, Any]] = {  # what stands in the place of a published piece
    "nothing": {},
    "input": {"normalise": "none"},
    "norm": {"norm": "post"},
    "padding": {"padding": "ignored"},
    "projections": {"projection_start": "xavier"},
    "directions": {"direction_start": "orthogonal"},
    "scores": {"score_dropout": None},
    "anchors": {"anchor_rule": "sample"},
}
OF_PRIMAL_LAYERS = ("directions", "scores", "anchors")


def cells(models: list[str], pieces: list[str]) -> Iterator[tuple[str, str]]:
    """The whole recipe of every model first, then the pieces."""
    for piece in pieces:
        for model in models:
            if not (model == "softmax" and piece in OF_PRIMAL_LAYERS):
                yield model, piece


def name_of(model: str, piece: str, seed: int) -> str:
    return f"{model}-without-{piece}-{seed}"


def run(out: Path, model: str, piece: str, seed: int) -> None:
    """Train, or go on, unless it is known how this one ended."""
    case = {"model": model, "without": piece, "seed": seed}
    if any(case.items() <= known.items() for known in finished()):
        return
    folder = out / name_of(model, piece, seed)
    if not folder.exists():
        given = {"protocol": "paper", "seed": seed} | PIECES[piece]
        train(resolve(TASK, MODELS[model], "paper", **given), root=out, name=folder.name)
    elif read_result(folder) is None:
        resume(folder)
    ended = read_result(folder)
    if ended is None:
        raise RuntimeError(f"{folder} has no result; expected a run that has ended")
    RESULTS.parent.mkdir(exist_ok=True)
    with open(RESULTS, "a") as file:
        file.write(json.dumps({**case, "accuracy": ended.figure}) + "\n")


def finished() -> list[dict[str, Any]]:
    """Every run that has ended."""
    return (
        [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    )


def line(model: str, piece: str, seeds: list[int]) -> str:
    """A row of the table."""
    cell = {"model": model, "without": piece}
    ended = [row for row in finished() if cell.items() <= row.items() and row["seed"] in seeds]
    if not ended:
        return f"| {model} | {piece} | not run | | | {PRINTED[model]} |"
    ended.sort(key=lambda row: int(row["seed"]))
    figures = [100 * float(row["accuracy"]) for row in ended]
    mean, _, interval = mean_interval(figures)
    between = "" if interval is None else f"{interval[0]:.1f} to {interval[1]:.1f}"
    shown = ", ".join(f"{one:.1f}" for one in figures)
    return f"| {model} | {piece} | {shown} | {mean:.1f} | {between} | {PRINTED[model]} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("pieces"), help="folder of the runs")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--pieces", default=",".join(PIECES))
    parser.add_argument("--seeds", default="0-2")
    parser.add_argument("--show", action="store_true")
    given = parser.parse_args()
    seeds = list(parse_seeds(given.seeds))
    wanted = list(cells(given.models.split(","), given.pieces.split(",")))
    if not given.show:
        for model, piece in wanted:
            for seed in seeds:
                run(given.out, model, piece, seed)
                print(line(model, piece, seeds), flush=True)
    print("| model | without | accuracy by seed | mean | 95 % | paper |")
    print("|---|---|---|---|---|---|")
    for model, piece in wanted:
        print(line(model, piece, seeds))


if __name__ == "__main__":
    main()
