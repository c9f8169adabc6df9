"""Run folders as training leaves them, without training."""

import json
import math
from pathlib import Path

import pytest

from primal_attention.train.config import RunConfig

CONFUSION = [[9, 1, 0], [0, 8, 2], [1, 0, 9]]


def _write_run(folder: Path, *, epochs: int = 12, protocol: str = "holdout", **settings) -> Path:
    """A finished run with curves that fall and rise as they should."""
    config = RunConfig(task="uea/JapaneseVowels", protocol=protocol, **settings)
    primal = "primal" in config.attention
    split = {"holdout": "validation", "paper": "test"}[protocol]
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config.to_dict()))
    result = {"protocol": protocol, "label": f"accuracy chosen on {split}", "accuracy": 26 / 30}
    result |= {"epoch": epochs - 2, "classes": ["1", "2", "3"], "confusion": CONFUSION}
    (folder / "result.json").write_text(json.dumps(result))
    lines = [{"kind": "step", "step": 1, "task_loss": 2.0}]
    for epoch in range(1, epochs + 1):
        line = {"kind": "epoch", "epoch": epoch, "task_loss": 2.0 * math.exp(-epoch / 4)}
        line |= {"ksvd_loss": 50.0 * math.exp(-epoch) if primal else None, "split": split}
        lines.append(line | {"accuracy": 1 - 0.8 * math.exp(-epoch / 3)})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.fixture
def write_run():
    """Writes a run folder, `write_run(path, attention=...)`."""
    return _write_run


@pytest.fixture
def run(tmp_path):
    return _write_run(tmp_path / "run")
