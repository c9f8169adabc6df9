"""Five ways to honest probabilities, on time series: which of them is better for sure?

    python benchmarks/calibration.py --data FOLDER --sets UWaveGestureLibrary Handwriting --seeds 5

--data: a folder with the .ts files of the sets (see `primal data`). A fifth of the training cases
is held out for the temperature; all methods learn from the rest, with one network each
(`PrimalFormerClassifier(ensemble="net")`), and are judged on the official test set.

as it is: one network. temperature: the same with a temperature from the held-out cases. dropout:
the mean of 16 draws with dropout. readout: a network with a Gaussian on W_c of its last layer, the
mean of 16 draws. ensemble: the mean of the seeds. Figures of the first four are means over seeds;
differences to "as it is" are paired over test cases, with 95 % intervals of a bootstrap. Strange:
test series backwards, told from the others by entropy (AUROC).

The logits of every network are kept in --work, so that a run that is interrupted continues; the
table goes to `benchmarks/results/calibration.json`.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

import primal_attention as pa
from primal_attention import calibration
from primal_attention.tasks import get_task
from primal_attention.tasks.series import stratified_split

RESULTS = Path(__file__).parent / "results" / "calibration.json"
DRAWS, BATCH = 16, 32


def read(name: str, folder: Path) -> dict[str, tuple[list[Any], Any]]:
    """Series (channels, length) and labels: fit, held out, test, and the test backwards."""
    parts = get_task(f"uea/{name}").load(folder)
    train = [x.T for x in parts["train"].series]
    labels = parts["train"].labels
    kept, held_out = stratified_split(labels, 0.2, 0)
    test = [x.T for x in parts["test"].series]
    return {
        "fit": ([train[i] for i in kept], labels[kept]),
        "held_out": ([train[i] for i in held_out], labels[held_out]),
        "test": (test, parts["test"].labels),
        "strange": ([x[:, ::-1].copy() for x in test], parts["test"].labels),
    }


def outputs(fitted: Any, series: list[Any], kind: str) -> np.ndarray[Any, Any]:
    """Logits (draws, cases, classes): one, or several where something is drawn."""
    ensemble = fitted.ensemble_
    data = ensemble._data(ensemble._drawn(series))
    model = fitted.model_.double()
    found = []
    for first in range(0, len(series), BATCH):
        batch = data.__getitems__(list(range(first, min(first + BATCH, len(series)))))
        call = (batch.inputs.double(), batch.padding)
        if kind == "plain":
            with torch.no_grad():
                found.append(model(*call)[None])
        else:
            found.append(pa.draws(model, call, DRAWS, kind=kind))
    return torch.cat(found, 1).numpy()


def networks(name: str, parts: Any, seed: int, work: Path) -> dict[str, Any]:
    """The logits of the two networks of a seed, computed once."""
    path = work / f"{name}-{seed}.npz"
    if not path.exists():
        found = {}
        for uncertainty in ("none", "readout"):
            fitted = pa.PrimalFormerClassifier(
                ensemble="net", uncertainty=uncertainty, random_state=seed
            ).fit(*parts["fit"])
            wanted = ("readout",) if uncertainty == "readout" else ("plain", "dropout")
            for kind in wanted:
                for part in ("held_out", "test", "strange"):
                    found[f"{kind}_{part}"] = outputs(fitted, parts[part][0], kind)
        work.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(path, **found)
    return dict(np.load(path))


def judge(name: str, parts: Any, found: list[dict[str, Any]]) -> dict[str, Any]:
    labels, held_out = parts["test"][1], parts["held_out"][1]
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


def show(found: dict[str, Any]) -> None:
    print(f"{found['set']}, {found['seeds']} seeds")
    for method, row in found["methods"].items():
        cells = []
        for key in ("accuracy", "ece", "nll", "brier", "aurc"):
            one, gap = row["figures"][key], row["differences"][key]
            star = "*" if gap["sure"] else ""
            cells.append(f"{key} {one['value']:.4f}{star} [{one['low']:.4f}, {one['high']:.4f}]")
        print(f"  {method:<12}", *cells, f"strange {np.mean(row['strange_by_seed']):.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--sets", nargs="+", default=["UWaveGestureLibrary", "Handwriting"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--work", type=Path, default=Path("calibrated"))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    tables = []
    for name in asked.sets:
        parts, found = read(name, asked.data), []
        for seed in range(asked.seeds):
            found.append(networks(name, parts, seed, asked.work))
            print(f"{name}, seed {seed} is done", flush=True)
        tables.append(judge(name, parts, found))
        show(tables[-1])
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(tables, indent=1) + "\n")


if __name__ == "__main__":
    main()
