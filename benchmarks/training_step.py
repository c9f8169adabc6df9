"""A training step of PrimalFormer in the published style against ours, with the paper's settings.

    python benchmarks/training_step.py                     # both settings, about a minute
    python benchmarks/training_step.py --only Heartbeat --repeats 9

A step is forward, backward, clipping and the optimiser: RAdam as torch constructs it by default
against ours. JapaneseVowels has batches of its real series; Heartbeat has random numbers of its
sizes. The two are timed in turn on the same batches, and the ratio is the median over the rounds.
First both get the same parameters and must give the same logits, loss and gradient norm on a batch
without padding (where there is padding, the published style computes something else); nothing is
reported otherwise.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle, pairwise

import torch
from published_former import PublishedFormer, copy_parameters
from torch import Tensor, nn
from torch.nn import functional as F

import primal_attention as pa
from primal_attention.bench.measure import ratio
from primal_attention.models import SequenceClassifier
from primal_attention.tasks import Batch, SeriesData, get_task
from primal_attention.train.optim import make_optimizer

PARTS = ("forward", "backward", "clip", "optimizer")
LR, CLIP = 1e-3, 4.0


@dataclass(frozen=True)
class Setting:
    """A data set of the paper: (s, eta) and rank_multi as there, with batches of 16."""

    length: int
    channels: int
    classes: int
    rank: int
    eta: float
    rank_multi: int
    repeats: int
    batch: int = 16

    @property
    def anchors(self) -> int:
        return min(self.rank * self.rank_multi, self.length)


SETTINGS = {
    "JapaneseVowels": Setting(29, 12, 9, rank=40, eta=0.5, rank_multi=5, repeats=40),
    "Heartbeat": Setting(405, 61, 2, rank=30, eta=0.5, rank_multi=10, repeats=7),
}


def batches(name: str, s: Setting) -> Iterator[Batch]:
    """Endless batches, padded to their longest series."""
    if name == "JapaneseVowels":
        data = SeriesData(get_task(f"uea/{name}").load(splits=("train",))["train"])
        order = torch.randperm(len(data)).tolist()
        chunks = [order[i : i + s.batch] for i in range(0, len(data) - s.batch + 1, s.batch)]
        return cycle(data.__getitems__(chunk) for chunk in chunks)
    inputs = torch.randn(s.batch, s.length, s.channels)
    padding = torch.zeros(s.batch, s.length, dtype=torch.bool)
    return cycle([Batch(inputs, padding, torch.randint(s.classes, (s.batch,)))])


def build(s: Setting, dropout: float) -> tuple[PublishedFormer, SequenceClassifier]:
    """Both models with the same parameters. Neither has dropout inside the attention."""
    torch.manual_seed(0)
    published = PublishedFormer(
        s.channels, s.classes, s.length, rank=s.rank, anchors=s.anchors, dropout=dropout
    )
    options = {"rank": s.rank, "rank_multi": s.rank_multi, "dropout": 0.0}
    ours = SequenceClassifier(
        classes=s.classes, channels=s.channels, max_length=s.length, head="flatten",
        attention_options={"primal": options}, dropout=dropout,
    )  # fmt: skip
    copy_parameters(published, ours)
    return published, ours


def published_loss(model: nn.Module, batch: Batch, s: Setting) -> tuple[Tensor, Tensor]:
    """The published style pads every batch to the length of the longest series."""
    more = s.length - batch.inputs.shape[1]
    inputs = F.pad(batch.inputs, (0, 0, 0, more))
    padding = F.pad(batch.padding, (0, more), value=True)
    logits, ksvd = model(inputs, padding)
    return logits, F.cross_entropy(logits, batch.targets) + s.eta * ksvd


def our_loss(model: nn.Module, batch: Batch, s: Setting) -> tuple[Tensor, Tensor]:
    logits = model(batch.inputs, batch.padding)
    return logits, F.cross_entropy(logits, batch.targets) + s.eta * pa.ksvd_loss(model)


Loss = Callable[[nn.Module, Batch, Setting], tuple[Tensor, Tensor]]


def check(name: str, s: Setting) -> None:
    """Refuse to time what does not compute the same."""
    torch.manual_seed(1)
    inputs = torch.randn(4, s.length, s.channels)
    padding = torch.zeros(4, s.length, dtype=torch.bool)
    batch = Batch(inputs, padding, torch.randint(s.classes, (4,)))
    found = []
    for model, loss_of in zip(build(s, dropout=0.0), (published_loss, our_loss), strict=True):
        logits, loss = loss_of(model, batch, s)
        loss.backward()
        norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
        found.append((logits, loss, norm))
    for what, theirs, ours in zip(("logits", "loss", "gradient norm"), *found, strict=True):
        error = ((ours - theirs).abs().max() / theirs.abs().max()).item()
        if not error < 1e-4:
            raise SystemExit(f"{name}: {what} differ by {error:.1e}; nothing is reported")


def timed_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, loss_of: Loss, batch: Batch, s: Setting
) -> list[float]:
    """Seconds of the parts of a step."""
    times = [time.perf_counter()]
    optimizer.zero_grad()
    _, loss = loss_of(model, batch, s)
    times.append(time.perf_counter())
    loss.backward()
    times.append(time.perf_counter())
    torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    times.append(time.perf_counter())
    optimizer.step()
    times.append(time.perf_counter())
    return [after - before for before, after in pairwise(times)]


def measure(name: str, s: Setting, repeats: int) -> dict[str, list[list[float]]]:
    """Seconds of the parts, of every round, of either."""
    published, ours = build(s, dropout=0.1)
    rivals = {
        "published": (published, torch.optim.RAdam(published.parameters(), lr=LR), published_loss),
        "ours": (ours, make_optimizer("radam", ours.parameters(), lr=LR), our_loss),
    }
    rounds: dict[str, list[list[float]]] = {rival: [] for rival in rivals}
    warm_up = 6 if s.length < 100 else 2  # RAdam's first five steps are shorter
    for number, batch in enumerate(batches(name, s)):
        if number == warm_up + repeats:
            return rounds
        turn = list(rivals.items())
        for rival, (model, optimizer, loss_of) in turn[:: 1 if number % 2 else -1]:
            seconds = timed_step(model, optimizer, loss_of, batch, s)
            if number >= warm_up:
                rounds[rival].append(seconds)
    raise AssertionError("batches are endless")


def report(name: str, rounds: dict[str, list[list[float]]]) -> str:
    totals = {rival: [sum(parts) for parts in found] for rival, found in rounds.items()}
    lines = [
        f"**{name}**: {ratio(totals['published'], totals['ours']):.2f} times as fast",
        "",
        f"| ms (share) | {' | '.join(PARTS)} | step |",
        f"|---|{'---|' * (len(PARTS) + 1)}",
    ]
    for rival, found in rounds.items():
        medians = [1e3 * statistics.median(column) for column in zip(*found, strict=True)]
        cells = [f"{m:.1f} ({m / sum(medians):.0%})" for m in medians]
        step = 1e3 * statistics.median(totals[rival])
        lines.append(f"| {rival} | {' | '.join(cells)} | {step:.1f} |")
    pairs = zip(*(zip(*rounds[rival], strict=True) for rival in ("published", "ours")), strict=True)
    cells = [f"{ratio(list(theirs), list(ours)):.2f}" for theirs, ours in pairs]
    lines.append(
        f"| ratio | {' | '.join(cells)} | {ratio(totals['published'], totals['ours']):.2f} |"
    )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=list(SETTINGS), nargs="*", default=list(SETTINGS))
    parser.add_argument("--repeats", type=int, help="rounds; default 40 (short), 7 (long series)")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"{platform.machine()}, {arguments.threads} threads, torch {torch.__version__}\n")
    for name in arguments.only:
        setting = SETTINGS[name]
        check(name, setting)
        torch.manual_seed(2)
        print(report(name, measure(name, setting, arguments.repeats or setting.repeats)))


if __name__ == "__main__":
    main()
