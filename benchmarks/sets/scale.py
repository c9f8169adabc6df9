"""How a fitted table and a large bag grow: rows, seconds, memory, bytes.

    python -m benchmarks.sets.scale --out scale.jsonl

Diamonds-like rows are drawn: 9 numbers, a smooth function and noise; what is measured is cost, of
one network ("table") and of the default ("default", one step of training: its file is as large).
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from .lines import Lines, arguments


def default(rows: int) -> dict[str, Any]:
    return table(rows, steps=1)


def table(rows: int, **settings: Any) -> dict[str, Any]:
    from primal_attention import PrimalTableRegressor

    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, 9))
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(rows)
    begin = time.process_time()
    settings = settings or {"networks": 1, "steps": 100}
    model = PrimalTableRegressor(random_state=0, epochs=0, **settings).fit(X, y)
    fitted = time.process_time()
    model.summary_ = model._summarise(model._rows(X, y))
    summed = time.process_time()
    model.predict(X[:1000])
    done = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "saved")
        size = sum(file.stat().st_size for file in (Path(folder) / "saved").iterdir())
    return {"fit": fitted - begin, "summarise": summed - fitted, "predict_1000": done - summed,
            "file_bytes": size, "summary_bytes": sum(s.nbytes for s in model.summary_)}  # fmt: skip


def bag(instances: int) -> dict[str, Any]:
    import torch

    from primal_attention.models import SequenceClassifier

    torch.manual_seed(0)
    net = SequenceClassifier(
        classes=2, channels=64, max_length=instances, attention=("primal",), width=64, heads=4,
        feedforward=128, norm="pre", positions="none", head="attention",
        attention_options={"primal": {"weights": "tied", "feature_map": "elu", "rank": 8}},
    )  # fmt: skip
    x = torch.randn(1, instances, 64)
    begin = time.process_time()
    torch.nn.functional.cross_entropy(net(x), torch.tensor([1])).backward()
    return {"seconds": time.process_time() - begin}


def main() -> None:
    given = arguments(__doc__ or "", case={"default": None}, size={"type": int, "default": 0})
    if given.case:
        found = {"table": table, "default": default, "bag": bag}[given.case](given.size)
        found["peak_bytes"] = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(found)
        return
    lines = Lines(given.out)
    cases = {"bag": (1000, 10_000, 100_000), "table": (5000, 15_000, 50_000), "default": (50_000,)}
    for case, sizes in cases.items():
        for size in sizes:

            def alone(case: str = case, size: int = size) -> dict[str, Any]:
                words = [sys.executable, "-m", "benchmarks.sets.scale", "--case", case, "--size",
                         str(size), "--out", str(given.out)]  # fmt: skip
                done = subprocess.run(words, capture_output=True, text=True, check=True)
                import ast

                return dict(ast.literal_eval(done.stdout.strip().splitlines()[-1]))

            lines.run(f"{case} {size}", alone)


if __name__ == "__main__":
    main()
