"""The results table of time-series runs, next to the paper's Table 1.

    python benchmarks/uea_table.py runs/* > docs/results/uea.md

Takes folders of `primal train uea/SET ...`, with one seed or several, finished or not.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

from primal_attention.cli.settings import command_for
from primal_attention.runs.statistics import mean_interval
from primal_attention.train.config import RunConfig

# Table 1 of the paper: Transformer, PrimalFormer, Primal.+Trans.
PAPER = {
    "EthanolConcentration": (32.7, 33.1, 35.4),
    "FaceDetection": (67.3, 67.1, 63.8),
    "Handwriting": (32.0, 29.6, 28.7),
    "Heartbeat": (76.1, 76.1, 77.1),
    "JapaneseVowels": (98.7, 98.4, 98.9),
    "PEMS-SF": (82.1, 89.6, 90.2),
    "SelfRegulationSCP1": (92.2, 92.5, 92.5),
    "SelfRegulationSCP2": (53.9, 57.2, 56.1),
    "SpokenArabicDigits": (98.4, 100.0, 100.0),
    "UWaveGestureLibrary": (85.6, 86.3, 88.4),
}
MODELS = {
    ("softmax", "softmax"): ("Transformer", 0),
    ("primal", "primal"): ("PrimalFormer", 1),
    ("softmax", "primal"): ("Primal.+Trans.", 2),
}


def read(folder: Path) -> tuple[RunConfig, dict[int, dict[str, Any]], list[int]]:
    """The settings, the results by seed, and the seeds that are not finished."""
    if (folder / "seeds.json").exists():
        document = json.loads((folder / "seeds.json").read_text())
        config, seeds = RunConfig.from_dict(document["config"]), document["seeds"]
        runs = {seed: folder / f"seed-{seed}" for seed in seeds}
    else:
        config = RunConfig.from_dict(json.loads((folder / "config.json").read_text()))
        runs = {config.seed: folder}
    paths = {seed: run / "result.json" for seed, run in runs.items()}
    results = {seed: json.loads(path.read_text()) for seed, path in paths.items() if path.exists()}
    return config, results, [seed for seed in runs if seed not in results]


def row(folder: Path) -> tuple[list[str], str] | None:
    config, results, missing = read(folder)
    if not results:
        return None
    name = config.task.removeprefix("uea/")
    model, column = MODELS[config.attention]
    accuracies = [100 * result["accuracy"] for result in results.values()]
    mean, deviation, interval = mean_interval(accuracies)
    test = next(iter(results.values()))["label"].startswith(("best TEST", "test"))
    comparable = config.recipe == "paper" and config.protocol == "paper"
    cells = [
        name,
        model,
        f"{config.recipe}, {config.epochs} epochs",
        config.protocol if test else f"{config.protocol}: VALIDATION, there is no test file",
        ", ".join(f"{a:.1f}" for a in accuracies),
        f"{mean:.1f}" + (f" +- {deviation:.1f}" if deviation is not None else ""),
        f"{max(interval[0], 0):.1f} to {min(interval[1], 100):.1f}" if interval else "",
        f"{PAPER[name][column]:.1f}" if name in PAPER else "",
        f"{mean - PAPER[name][column]:+.1f}" if name in PAPER and comparable else "",
        f"{sum(result['seconds'] for result in results.values()) / 60:.0f}",
    ]
    seeds = ",".join(map(str, results))
    note = f" (seeds {missing} not finished)" if missing else ""
    command = command_for(dataclasses.replace(config, data_dir=None))
    return cells, f"    {command} --seeds {seeds}{note}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+")
    found = [made for folder in sorted(parser.parse_args().runs) if (made := row(folder))]
    titles = ["set", "model", "recipe", "protocol", "accuracy by seed", "mean", "95 %", "paper"]
    titles += ["difference", "minutes"]
    print(f"| {' | '.join(titles)} |\n|{'---|' * len(titles)}")
    for cells, _ in sorted(found):
        print(f"| {' | '.join(cells)} |")
    print("\nCommands:\n\n" + "\n".join(command for _, command in sorted(found)))


if __name__ == "__main__":
    main()
