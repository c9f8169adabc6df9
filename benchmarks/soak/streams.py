"""Ten million tokens through attentions that keep sums: the state does not grow, a token costs what
it cost at the beginning, and single precision stays near double precision."""

from __future__ import annotations

import time
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch

from primal_attention import make_attention

from .campaign import Budget, Tally

TOKENS = 10_000_000
CHUNK = 10_000
STEPS = 200  # single tokens after the chunks
WIDTH, HEADS = 8, 2
DRIFT = 1e-3  # that single precision may lose, in parts of the greatest output
SLOWER = 1.5  # times as long as the first tenth that the last may take
KINDS: dict[str, dict[str, Any]] = {
    "tied": {"name": "primal", "rank": 4, "weights": "tied"},
    "tied elu": {"name": "primal", "rank": 4, "weights": "tied", "feature_map": "elu"},
    "tied cosine": {"name": "primal", "rank": 4, "weights": "tied", "feature_map": "cosine"},
    "free": {"name": "primal", "rank": 4, "weights": "free"},
    "linear": {"name": "linear"},
    "performer": {"name": "performer", "features": 8},
    "flow": {"name": "flow"},
    "cosformer": {"name": "cosformer", "max_length": 2 * TOKENS},
}


def run(budget: Budget, tally: Tally, folder: Path) -> None:
    """A case is a kind; the time ends it sooner."""
    torch.set_num_threads(1)
    kinds = list(KINDS)
    for number, kind in zip(budget, kinds, strict=False):
        tally.cases += 1
        _case(number, kind, budget, tally)


@torch.no_grad()
def _case(number: int, kind: str, budget: Budget, tally: Tally) -> None:
    torch.manual_seed(number)
    options = dict(KINDS[kind])
    single = make_attention(options.pop("name"), WIDTH, HEADS, causal=True, **options).eval()
    double = deepcopy(single).double()
    state, exact = single.init_state(1), double.init_state(1)  # type: ignore[operator]
    generator = torch.Generator().manual_seed(number)
    seconds, lost, size = [], 0.0, _numbers(state)
    for _ in range(0, TOKENS, CHUNK):
        if budget.spent > budget.seconds:
            break
        x = torch.randn(1, CHUNK, WIDTH, generator=generator)
        began = time.process_time()
        out, state = single.prefill(x, state=state)  # type: ignore[operator]
        seconds.append(time.process_time() - began)
        wanted, exact = double.prefill(x.double(), state=exact)  # type: ignore[operator]
        lost = max(lost, _lost(out, wanted))
        if not size:
            size = _numbers(state)
        if _numbers(state) != size:
            tally.fail(number, f"{kind}: the state grew from {size} to {_numbers(state)} numbers")
            return
    for _ in range(STEPS):
        x = torch.randn(1, WIDTH, generator=generator)
        out, state = single.step(x, state)  # type: ignore[operator]
        wanted, exact = double.step(x.double(), exact)  # type: ignore[operator]
        lost = max(lost, _lost(out, wanted))
    tenth = max(1, len(seconds) // 10)
    slower = sum(seconds[-tenth:]) / sum(seconds[:tenth])
    per = 1e6 * sum(seconds) / (len(seconds) * CHUNK)
    told = f"{len(seconds) * CHUNK:,} tokens, {size} numbers, {per:.2f} us a token"
    tally.figures[kind] = f"{told}, last tenth x {slower:.2f}, off by {lost:.1e}"
    if lost > DRIFT:
        tally.fail(number, f"{kind}: single precision is off by {lost:.2g}; expected {DRIFT:g}")
    if slower > SLOWER and len(seconds) >= 100:
        tally.fail(number, f"{kind}: the last tenth took {slower:.2f} times as long as the first")


def _lost(found: torch.Tensor, exact: torch.Tensor) -> float:
    return ((found.double() - exact).abs().max() / exact.abs().max()).item()


def _numbers(state: Any) -> int:
    """How many numbers a state holds."""
    if isinstance(state, torch.Tensor):
        return state.numel()
    if isinstance(state, tuple | list):
        return sum(map(_numbers, state))
    return sum(map(_numbers, vars(state).values())) if hasattr(state, "__dict__") else 0
