"""Three models on real data: PrimalFormer, Primal.+Trans. and the softmax Transformer.

    python examples/japanese_vowels.py --epochs 40

Nine speakers say two Japanese vowels; who speaks? Each model is trained by `primal train`, in a
process of its own so that its peak memory is its own, and the three are compared.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

TASK = "uea/JapaneseVowels"
MODELS = {  # one attention per layer
    "PrimalFormer": "primal,primal",
    "Primal.+Trans.": "softmax,primal",
    "Transformer": "softmax,softmax",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/japanese-vowels"))
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--width", type=int, default=64)
    arguments = parser.parse_args()
    out = new_folder(arguments.out)
    recipe = ["--epochs", arguments.epochs, "--width", arguments.width]
    recipe += ["--feedforward", 2 * arguments.width]
    results = {}
    try:
        for model, attention in MODELS.items():
            results[model] = train(model, attention, [str(word) for word in recipe], out)
    except KeyboardInterrupt:
        print(f"\nstopped; what was trained so far lies in {out}", file=sys.stderr)
        return 130
    except subprocess.CalledProcessError as failed:  # the command has said why
        return failed.returncode
    show(results)
    picture = draw(results, out)
    print(f"\nPicture of all three    {picture}")
    print(f"A folder for each run   {out}/<model>: settings, metrics, weights, curves.png")
    print("\nWhat to try next")
    print(f"  primal train {TASK} --attention primal --rank 8 --eta 0.5 --seeds 0-4")
    print("  primal train uea/BasicMotions          another set that comes with the package")
    print("  primal data                            the sets of the paper and how to get them")
    print("  make demo                              what primal attention is for")
    print("  python examples/long_sequence.py       100,000 positions: time, memory, spectrum")
    return 0


def new_folder(wanted: Path) -> Path:
    """The folder itself, or with a number if it exists: nothing is ever overwritten."""
    for folder in numbered(wanted):
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise AssertionError("numbers do not end")


def numbered(wanted: Path) -> Iterator[Path]:
    yield wanted
    yield from (wanted.with_name(f"{wanted.name}-{number}") for number in count(2))


def train(model: str, attention: str, recipe: list[str], out: Path) -> dict[str, Any]:
    """Run `primal train` and return its result; its progress goes to the terminal."""
    words = ["train", TASK, "--attention", attention, *recipe, "--out", str(out), "--name", model]
    print(f"\n{model}: {shlex.join(['primal', *words])}", flush=True)
    # models this small gain nothing from a second thread, and lose much on a busy machine
    environment = {"OMP_NUM_THREADS": "1"} | os.environ
    environment.pop("PRIMAL_ATTENTION_DATA", None)  # always the set inside the package
    process = subprocess.Popen(
        [sys.executable, "-m", "primal_attention", *words, "--json"],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    with process:
        try:
            printed, _ = process.communicate()
        except KeyboardInterrupt:  # the command got it too: it saves a checkpoint and ends
            process.communicate()
            raise
    if process.returncode == 130:
        raise KeyboardInterrupt
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, words)
    result: dict[str, Any] = json.loads(printed)
    print(f"{100 * result['accuracy']:.1f} % in {result['seconds']:.0f} s", flush=True)
    return result


def show(results: dict[str, dict[str, Any]]) -> None:
    print(f"\n{'':16}{'accuracy':>10}{'epoch':>8}{'parameters':>13}{'seconds':>10}{'peak MB':>10}")
    for model, r in results.items():
        print(
            f"{model:16}{100 * r['accuracy']:>8.1f} %{r['epoch']:>8}{r['parameters']:>13,}"
            f"{r['seconds']:>10.1f}{r['peak_memory_mb']:>10.0f}"
        )
    first = next(iter(results.values()))
    cases = sum(map(sum, first["confusion"]))
    error = 196 * math.sqrt(first["accuracy"] * (1 - first["accuracy"]) / cases)
    print(f"accuracy: {first['label']} ({first['protocol']} protocol)")
    print(
        f"one seed, {cases} test series: +-{error:.1f} points; memory is that of the whole process"
    )


def draw(results: dict[str, dict[str, Any]], out: Path) -> str:
    from primal_attention.report import compare

    try:
        runs = {model: result["run"] for model, result in results.items()}
        return str(compare(runs, out / "comparison", matrices=True)[0])
    except ModuleNotFoundError as missing:
        return f"none: {missing}"


if __name__ == "__main__":
    sys.exit(main())
