"""Training, streaming and estimators, again and again in one process: its memory stays as it is."""

from __future__ import annotations

import gc
import shutil
import statistics
from pathlib import Path

import numpy as np
import torch

import primal_attention as pa
from primal_attention.bench.measure import status_kilobytes
from primal_attention.train import train

from . import tiny
from .campaign import Budget, Tally

WARM = 5  # rounds until caches and pools have their size
GROWTH = 4.0  # megabytes that the last rounds may have more than the first


def run(budget: Budget, tally: Tally, folder: Path) -> None:
    torch.set_num_threads(1)
    settings = tiny.config(folder)
    layer = pa.PrimalAttention(16, 2, rank=4, causal=True).eval()
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(12, 2, 8)), np.arange(12) % 2
    resident = []
    for number in budget:
        path = folder / f"run-{number}"
        train(settings, root=folder, name=path.name)
        shutil.rmtree(path)
        stream(layer, 300)
        for model in (
            pa.PrimalFormerClassifier(**tiny.ESTIMATOR),
            pa.PrimalRocketClassifier(groups=2, random_state=0),
        ):
            model.fit(X, y).predict_proba(X)
        tally.cases += 1
        resident.append(megabytes())
    settled = resident[WARM:]
    if len(settled) >= 8:
        part = len(settled) // 4
        first, last = (statistics.median(r) for r in (settled[:part], settled[-part:]))
        tally.figures["megabytes"] = f"{first:.1f} to {last:.1f}"
        if last - first > GROWTH:
            tally.fail(number, f"memory grew from {first:.1f} to {last:.1f} MB")


@torch.no_grad()
def stream(layer: pa.PrimalAttention, tokens: int) -> None:
    state = layer.init_state(1)
    for token in torch.randn(tokens, 1, 16):
        _, state = layer.step(token, state)


def megabytes() -> float:
    gc.collect()
    return status_kilobytes("VmRSS") / 1024
