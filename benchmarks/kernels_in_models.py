"""A training step of whole models with the native kernels and without them.

    python benchmarks/kernels_in_models.py                       # a few minutes
    python benchmarks/kernels_in_models.py --only bert --repeats 5

The kernels are switched off and on by PRIMAL_KERNELS in one run, on one model and one batch, in
turn; the ratio is the median over the rounds. A step is forward, loss, backward and the optimiser.
With one thread times are CPU time.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
from collections.abc import Callable

import torch
from torch import nn

import primal_attention as pa
from primal_attention.bench.candidates import parse_candidate
from primal_attention.bench.measure import clock_of, interleaved, ratio
from primal_attention.bench.settings import Settings
from primal_attention.bench.steps import make_inputs, make_step
from primal_attention.kernels.native.library import VARIABLE
from primal_attention.models import SequenceClassifier
from primal_attention.train.optim import make_optimizer

Step = Callable[[], object]


def bert(batch: int = 2, length: int = 512) -> Step:
    """An encoder of BERT's size, all of its attentions converted."""
    layer = nn.TransformerEncoderLayer(768, 12, 3072, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
    pa.convert_(model, layers="all", rank=16)
    x = torch.randn(batch, length, 768)
    return training_step(model, lambda: model(x).square().mean())


def former(batch: int = 16, length: int = 405, channels: int = 61) -> Step:
    """A PrimalFormer as it is by default, on series of the size of Heartbeat."""
    model = SequenceClassifier(
        classes=2, channels=channels, max_length=length, attention=("primal", "primal"), dropout=0.0
    )
    x, targets = torch.randn(batch, length, channels), torch.arange(batch) % 2
    padding = torch.zeros(batch, length, dtype=torch.bool)
    return training_step(model, lambda: nn.functional.cross_entropy(model(x, padding), targets))


def text(batch: int = 4, length: int = 4096) -> Step:
    """The model of the Long-Range Arena's Text."""
    settings = Settings(what="lra/text", batch_size=batch, threads=torch.get_num_threads())
    return make_step(settings, parse_candidate("primal"), make_inputs(settings, length))


MODELS = {"bert": bert, "former": former, "text": text}


def training_step(model: nn.Module, loss_of: Callable[[], torch.Tensor]) -> Step:
    optimizer = make_optimizer("adamw", model.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad()
        (loss_of() + 0.1 * pa.ksvd_loss(model)).backward()
        optimizer.step()

    return step


def switched(step: Step, value: str) -> Step:
    """A step with PRIMAL_KERNELS set."""

    def run() -> None:
        before = os.environ.get(VARIABLE)
        os.environ[VARIABLE] = value
        try:
            step()
        finally:
            os.environ.pop(VARIABLE) if before is None else os.environ.update({VARIABLE: before})

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=list(MODELS), nargs="*", default=list(MODELS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"{platform.machine()}, {arguments.threads} threads, torch {torch.__version__}\n")
    print("| | without, ms | with, ms | times as fast |\n|---|---|---|---|")
    for name in arguments.only:
        torch.manual_seed(0)
        step = MODELS[name]()
        steps = {"without": switched(step, "0"), "with": switched(step, "1")}
        rounds = interleaved(steps, arguments.repeats, warm_up=2, clock=clock_of(arguments.threads))
        medians = [1e3 * statistics.median(rounds[kind]) for kind in ("without", "with")]
        gain = ratio(rounds["without"], rounds["with"])
        print(f"| {name} | {medians[0]:.1f} | {medians[1]:.1f} | {gain:.2f} |", flush=True)


if __name__ == "__main__":
    main()
