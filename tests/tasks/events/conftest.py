"""A small log of events whose types follow one another and whose gaps follow their types."""

import numpy as np
import pytest


def log(sequences=30, events=15, seed=0):
    rng = np.random.default_rng(seed)
    lines = ["sequence,time,type"]
    for number in range(sequences):
        time, kind = 1.6e9, int(rng.integers(3))
        for _ in range(events):
            lines.append(f"u{number},{time:.4f},{'abc'[kind]}")
            kind = (kind + 1) % 3 if rng.random() < 0.8 else int(rng.integers(3))
            time += float(rng.lognormal(mean=kind, sigma=0.3))
    return "\n".join(lines) + "\n"


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(log())
    return path
