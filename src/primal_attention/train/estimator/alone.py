"""Training in memory: one at a time, and a plain loop of steps for models with a loss of their own.

torch's generators belong to all threads of a process, so whoever seeds them must be alone, and
leave them as they were.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from ..optim import make_optimizer
from ..order import seed_random
from .progress import Bar
from .rocket.model import threads

Model = TypeVar("Model", bound=nn.Module)
_one_at_a_time = threading.Lock()
WARMUP = 0.1  # of the steps
JUDGED = 20  # steps from one judgement to the next


@contextmanager
def alone(*devices: torch.device) -> Iterator[None]:
    """One thread of one training; the state of torch's generators is that of before."""
    with _one_at_a_time, threads(1), torch.random.fork_rng(devices=list(devices)):
        yield


@dataclass(frozen=True)
class Steps:
    """How a model is trained: AdamW, a linear warm-up and then half a cosine down to zero."""

    steps: int
    lr: float
    weight_decay: float = 0.01
    clip: float = 1.0
    seed: int = 0
    verbose: bool = False
    patience: int = 10  # judgements without a better one, after which training ends

    def run(
        self,
        make: Callable[[], Model],
        loss: Callable[[Model, torch.Generator], Tensor],
        judge: Callable[[Model], float] | None = None,
    ) -> tuple[Model, list[float]]:
        """The trained model, in evaluation, and the loss of every step. `loss` draws its cases from
        the generator that it is given. `judge`, a loss on cases that were held out, chooses the
        weights; without one the last ones count."""
        place, bar, history = torch.device("cpu"), Bar(1, self.verbose), list[float]()
        best: tuple[float, int, dict[str, Tensor]] | None = None
        with alone():
            seed_random(place, self.seed, "weights")
            model = make().train()
            chosen = torch.Generator().manual_seed(self.seed)
            optimizer = make_optimizer(
                "adamw", model.parameters(), lr=self.lr, weight_decay=self.weight_decay
            )
            for step in range(self.steps):
                for group in optimizer.param_groups:
                    group["lr"] = self.lr * self._factor(step)
                found = loss(model, chosen)
                history.append(self._finite(found.detach(), "loss", step))
                optimizer.zero_grad(set_to_none=True)
                found.backward()
                norm = nn.utils.clip_grad_norm_(model.parameters(), self.clip)
                self._finite(norm, "gradient", step)
                optimizer.step()
                bar.show(0, step + 1, self.steps)
                if judge is None or (step + 1) % JUDGED:
                    continue
                judged = self._finite(self._judge(model, judge), "loss of held-out cases", step)
                if best is None or judged < best[0]:
                    weights = {n: t.detach().clone() for n, t in model.state_dict().items()}
                    best = judged, step, weights
                elif step - best[1] >= self.patience * JUDGED:
                    break
        bar.close()
        if best is not None:
            model.load_state_dict(best[2])
        return model.eval(), history

    def _finite(self, value: Tensor | float, what: str, step: int) -> float:
        """A number, or the end: from then on every weight would be NaN."""
        number = float(value)
        if not math.isfinite(number):
            raise FloatingPointError(
                f"the {what} is {number} in step {step + 1} of {self.steps}; expected a lower lr "
                f"than {self.lr}, or smaller numbers in the data"
            )
        return number

    @staticmethod
    @torch.no_grad()
    def _judge(model: Model, judge: Callable[[Model], float]) -> float:
        model.eval()
        judged = judge(model)
        model.train()
        return judged

    def _factor(self, step: int) -> float:
        warm = max(1, round(WARMUP * self.steps))
        if step < warm:
            return (step + 1) / warm
        return 0.5 * (1.0 + math.cos(math.pi * (step - warm) / max(1, self.steps - warm)))
