"""`primal cost --measure`: the cost model against times measured here, on one thread.

Times are processor seconds, so that other work on the machine counts little.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ..analysis import (
    Machine,
    crossing,
    fitted,
    layer_cost,
    measured_crossing,
    predicted_crossing,
)
from ..bench.candidates import parse_candidate
from ..bench.measure import free_megabytes
from ..bench.settings import Settings
from ..bench.steps import make_inputs, make_step
from .show import console, new_table

REPEATS = 3
TURN_SECONDS = 0.02  # shorter calls are repeated within their turn
LONGEST_CALL = 20.0  # predicted seconds; what takes longer is left out
USABLE = 0.5  # of the free memory
PRODUCT, COPIED = 1024, 1 << 25  # rows of the product, numbers that are copied

Kind = tuple[str, dict[str, Any]]


def compare(kinds: dict[str, Kind], lengths: list[int], **sizes: Any) -> dict[str, Any]:
    """Predicted and measured seconds of a forward of every kind and length, and the lengths from
    which on each is faster than fused softmax: by FLOPs, predicted, measured."""
    kinds = {"softmax, fused": ("softmax", {})} | kinds
    with _one_thread():
        machine = measure_machine(sizes["dtype"])
        cells = {
            kind: [_cell(machine, *one, length, sizes) for length in lengths]
            for kind, one in kinds.items()
        }
    softmax = [cell["measured"] for cell in cells["softmax, fused"]]
    rows = []
    for kind, (name, options) in kinds.items():
        row: dict[str, Any] = {"attention": kind, "cells": cells[kind], "fit": _fit(cells[kind])}
        if name != "softmax":
            times = [cell["measured"] for cell in cells[kind]]
            row["faster_from"] = {
                "flops": crossing(name, options=options, **sizes),
                "predicted": predicted_crossing(name, machine, options=options, **sizes),
                "measured": measured_crossing(lengths, times, softmax),
            }
        rows.append(row)
    speeds = {"flops": machine.flops, "bandwidth": machine.bandwidth}
    return {"sizes": sizes, "lengths": lengths, "machine": speeds, "attentions": rows}


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


def _cell(
    machine: Machine, name: str, options: dict[str, Any], length: int, sizes: dict[str, Any]
) -> dict[str, Any]:
    cost = layer_cost(name, length, options=options, **sizes)
    predicted = machine.seconds(cost)
    fits = cost.memory < USABLE * free_megabytes() * 2**20
    seconds = None
    if predicted < LONGEST_CALL and fits:
        settings = Settings(mode="forward", threads=1, **sizes)
        word = "materialised" if options.get("matrix") else options.get("weights")
        candidate = parse_candidate(f"{name}:{word}" if word else name)
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


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# -- words ---------------------------------------------------------------------------------------


def show(found: dict[str, Any]) -> None:
    from .cost import short

    machine = found["machine"]
    console().print(
        f"One thread: {short(machine['flops'])}FLOP/s in a product, "
        f"{short(machine['bandwidth'])}B/s in a copy. Processor milliseconds of a forward, "
        "measured (measured / predicted):",
        highlight=False,
    )
    lengths = (f"N = {short(n)}" for n in found["lengths"])
    table = new_table("attention", *lengths, "fit: ms + factor x predicted")
    for row in found["attentions"]:
        fit = row["fit"]
        line = "" if fit is None else f"{1000 * fit['overhead']:.2g} + {fit['factor']:.2f} x"
        table.add_row(row["attention"], *map(_time, row["cells"]), line)
    console().print(table, highlight=False)
    console().print()
    table = new_table("faster than softmax from", "by FLOPs", "predicted", "measured")
    for row in found["attentions"]:
        if "faster_from" in row:
            by = row["faster_from"]
            starts = ["never" if by[k] is None else f"{by[k]:,}" for k in ("flops", "predicted")]
            last = found["lengths"][-1]
            table.add_row(row["attention"], *starts, _crossing(by["measured"], last))
    console().print(table, highlight=False)


def _time(cell: dict[str, Any]) -> str:
    if cell["measured"] is None:
        return "not run"
    return f"{1000 * cell['measured']:.3g} ({cell['measured'] / cell['predicted']:.1f})"


def _crossing(found: tuple[float, float] | None, longest: int) -> str:
    if found is None:
        return f"not up to {longest:,}"
    estimate, slower = found
    return f"about {estimate:,.0f}" if slower else f"{estimate:,.0f} or before"
