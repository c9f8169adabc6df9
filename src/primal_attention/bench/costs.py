"""What attentions cost by length: from the formulas, and against times measured here.

Times are processor seconds of one thread, so that other work on the machine counts little.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..analysis import (
    Machine,
    crossing,
    fitted,
    largest_length,
    layer_cost,
    measured_crossing,
    predicted_crossing,
)
from ..analysis.cost import costed_attentions
from ..attention import available_attentions
from .candidates import FLOOR, MATERIALISED, SOFTMAX, Candidate, default_candidates, parse_candidate
from .measure import free_megabytes, threads
from .settings import Settings
from .steps import make_inputs, make_step

REPEATS = 3
TURN_SECONDS = 0.02  # shorter calls are repeated within their turn
LONGEST_CALL = 20.0  # predicted seconds; what takes longer is left out
USABLE = 0.5  # of the free memory
PRODUCT, COPIED = 1024, 1 << 25  # rows of the product, numbers that are copied


def costed_candidates() -> tuple[Candidate, ...]:
    """All attentions in all their kinds that have a formula."""
    known = costed_attentions()
    return tuple(one for one in default_candidates() if _layer(one)[0] in known)


def predict(
    candidates: Sequence[Candidate], lengths: Sequence[int], memory: int, **sizes: Any
) -> dict[str, Any]:
    """Every candidate with its costs at all lengths, the length from which on it beats softmax and
    the longest that fits into `memory` bytes. `sizes` are those of `layer_cost`."""
    rows = []
    for one in candidates:
        name, options = _layer(one)
        own = {"options": options, **sizes}
        rows.append(
            {
                "attention": one.text,
                "costs": [layer_cost(name, n, **own).to_dict() for n in lengths],
                "cheaper_from": None if name == SOFTMAX else crossing(name, **own),
                "fits": {
                    "inference": largest_length(name, memory, **own),
                    "training": largest_length(name, memory, training=True, **own),
                },
            }
        )
    without = sorted(set(available_attentions()) - set(costed_attentions()))
    found = {"sizes": sizes, "device_memory": memory, "attentions": rows}
    return found | ({"without_formula": without} if without else {})


def compare(
    candidates: Sequence[Candidate], lengths: Sequence[int], **sizes: Any
) -> dict[str, Any]:
    """Predicted and measured seconds of a forward of every candidate and length, and the lengths
    from which on each is faster than fused softmax: by FLOPs, predicted, measured."""
    candidates = [parse_candidate(SOFTMAX), *(one for one in candidates if one.text != SOFTMAX)]
    with threads(1):
        machine = measure_machine(sizes["dtype"])
        cells = {one: [_cell(machine, one, n, sizes) for n in lengths] for one in candidates}
    softmax = [cell["measured"] for cell in cells[candidates[0]]]
    rows = []
    for one, own in cells.items():
        row: dict[str, Any] = {"attention": one.text, "cells": own, "fit": _fit(own)}
        name, options = _layer(one)
        if name != SOFTMAX:
            times = [cell["measured"] for cell in own]
            row["faster_from"] = {
                "flops": crossing(name, options=options, **sizes),
                "predicted": predicted_crossing(name, machine, options=options, **sizes),
                "measured": measured_crossing(lengths, times, softmax),
            }
        rows.append(row)
    speeds = {"flops": machine.flops, "bandwidth": machine.bandwidth}
    return {"sizes": sizes, "lengths": list(lengths), "machine": speeds, "attentions": rows}


def measure_machine(dtype: str) -> Machine:
    """The speed of one thread in a large product and in a copy that leaves the cache."""
    kind: torch.dtype = getattr(torch, dtype)
    a = torch.randn(PRODUCT, PRODUCT).to(kind)
    source = torch.ones(COPIED, dtype=kind)
    target = torch.empty_like(source)
    product = processor_seconds(lambda: a @ a)
    copy = processor_seconds(lambda: target.copy_(source))
    return Machine(2 * PRODUCT**3 / product, 2 * COPIED * source.element_size() / copy)


def processor_seconds(step: Callable[[], object]) -> float:
    """The least processor time of a call over some repeats, after one to warm up."""
    step()
    found = math.inf
    for _ in range(REPEATS):
        calls, start = 0, time.process_time()
        while not calls or time.process_time() - start < TURN_SECONDS:
            step()
            calls += 1
        found = min(found, (time.process_time() - start) / calls)
    return found


def _layer(candidate: Candidate) -> tuple[str, dict[str, Any]]:
    """Name and options of the layer whose cost is a candidate's."""
    (one,) = candidate.layers(1)
    if one.text == MATERIALISED:
        return SOFTMAX, {"matrix": True}
    return (FLOOR if one.is_extra else one.name), dict(one.options)


def _cell(
    machine: Machine, candidate: Candidate, length: int, sizes: dict[str, Any]
) -> dict[str, Any]:
    name, options = _layer(candidate)
    cost = layer_cost(name, length, options=options, **sizes)
    predicted, seconds = machine.seconds(cost), None
    if predicted < LONGEST_CALL and cost.memory < USABLE * free_megabytes() * 2**20:
        settings = Settings(mode="forward", threads=1, **sizes)
        seconds = processor_seconds(make_step(settings, candidate, make_inputs(settings, length)))
    return {"length": length, "flops": cost.flops, "bytes": cost.bytes, "predicted": predicted,
            "measured": seconds}  # fmt: skip


def _fit(cells: list[dict[str, Any]]) -> dict[str, float] | None:
    """`measured = overhead + factor * predicted`; None where nothing was run."""
    run = [cell for cell in cells if cell["measured"] is not None]
    if not run:
        return None
    overhead, factor = fitted(*([cell[k] for cell in run] for k in ("predicted", "measured")))
    return {"overhead": overhead, "factor": factor}
