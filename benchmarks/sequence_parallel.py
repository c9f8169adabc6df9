"""One long sequence over several processes: exact, and with messages that do not grow with it.

    python benchmarks/sequence_parallel.py                          # up to 1,000,000 positions
    python benchmarks/sequence_parallel.py --lengths 10000,100000 --weights tied --workers 3

A step is forward and backward of a primal layer with the KSVD loss J^2. It is done once by a single
process that has the whole sequence, and once by workers with equal parts of it (gloo). Reported is
the largest difference of output, J and all gradients, relative to the largest entry; what each
worker hands to torch.distributed, counted there, the sum of gradients included; time and peak
memory above the sequence and the parameters, of each process, all with one thread. Ends with code 1
if a difference exceeds 1e-4 or the messages grow with the length.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor

import primal_attention as pa
from primal_attention.bench.measure import peak_above_start

WIDTH, HEADS, RANK, ETA = 64, 2, 20, 0.1
WARM_UP = 2_000  # positions
TOLERANCE = 1e-4


def make_layer(weights: str) -> pa.PrimalAttention:
    torch.manual_seed(0)
    return pa.PrimalAttention(WIDTH, HEADS, rank=RANK, weights=weights).train()


def sequence(length: int) -> Tensor:
    return torch.randn(1, length, WIDTH, generator=torch.Generator().manual_seed(1))


class Step:
    """One step over this process's part x of a sequence with `length` positions."""

    def __init__(self, weights: str, x: Tensor, length: int, *, sharded: bool) -> None:
        self.layer, self.length, self.sharded = make_layer(weights), length, sharded
        self.x = x.requires_grad_()

    def __call__(self) -> None:
        with pa.distributed.shard_sequence() if self.sharded else nullcontext():
            self.out, _ = self.layer(self.x)
            self.ksvd = pa.ksvd_loss(self.layer)
            task = self.out.square().sum() / (self.length * WIDTH)
            (task + ETA * self.ksvd).backward()
        if self.sharded:
            pa.distributed.sum_gradients(self.layer)

    def measured(self) -> dict[str, float]:
        seconds: list[float] = []

        def timed() -> None:
            start = time.perf_counter()
            self()
            seconds.append(time.perf_counter() - start)

        megabytes = peak_above_start(timed)
        return {"seconds": seconds[0], "peak_mb": megabytes}

    def found(self) -> dict[str, np.ndarray[Any, Any]]:
        """Everything that must agree, by name; J as one number."""
        named = {"output": self.out, "J": self.ksvd, "input": self.x.grad}
        named |= {f"of {name}": p.grad for name, p in self.layer.named_parameters()}
        return {name: t.detach().numpy() for name, t in named.items() if t is not None}


@contextmanager
def counted() -> Iterator[list[int]]:
    """The bytes that this process hands to torch.distributed, one entry a message."""
    sent: list[int] = []
    kept = dist.all_reduce, dist.all_gather

    def all_reduce(tensor: Tensor, *others: Any, **options: Any) -> Any:
        sent.append(tensor.nbytes)
        return kept[0](tensor, *others, **options)

    def all_gather(parts: list[Tensor], tensor: Tensor, *others: Any, **options: Any) -> Any:
        sent.append(tensor.nbytes)
        return kept[1](parts, tensor, *others, **options)

    dist.all_reduce, dist.all_gather = all_reduce, all_gather
    try:
        yield sent
    finally:
        dist.all_reduce, dist.all_gather = kept


def single(_: int, folder: str, cases: list[tuple[str, int]]) -> None:
    """The whole sequences in one process; the arrays are kept for the workers."""
    torch.set_num_threads(1)
    for weights, length in cases:
        Step(weights, sequence(WARM_UP), WARM_UP, sharded=False)()
        step = Step(weights, sequence(length), length, sharded=False)
        figures = step.measured()
        place = _place(folder, weights, length)
        place.mkdir()
        for name, array in step.found().items():
            np.save(place / f"{name}.npy", array)
        (place / "single.json").write_text(json.dumps(figures))


def workers(rank: int, folder: str, cases: list[tuple[str, int]], size: int) -> None:
    """This worker's parts, compared with those of the single process."""
    torch.set_num_threads(1)
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", rank=rank, world_size=size, init_method=meeting)
    for weights, length in cases:
        warm = pa.distributed.own_part(sequence(WARM_UP)).clone()
        Step(weights, warm, WARM_UP, sharded=True)()
        part = pa.distributed.own_part(sequence(length)).clone()
        step = Step(weights, part, length, sharded=True)
        dist.barrier()
        with counted() as sent:
            figures: dict[str, Any] = step.measured()
        place = _place(folder, weights, length)
        figures |= {"bytes": sum(sent), "messages": len(sent)}
        figures["differences"] = differences(step, place, rank, size)
        (place / f"worker-{rank}.json").write_text(json.dumps(figures))
    dist.destroy_process_group()


def differences(step: Step, place: Path, rank: int, size: int) -> dict[str, float]:
    """How far a worker is from the single process, at most, relative to the largest entry."""
    first = sum(len(x) for x in torch.arange(step.length).tensor_split(size)[:rank])
    own = slice(first, first + step.x.shape[1])
    found: dict[str, float] = {}
    for name, ours in step.found().items():
        whole = np.load(place / f"{name}.npy", mmap_mode="r")
        expected = whole[:, own] if name in ("output", "input") else whole
        off = float(np.abs(ours - expected).max() / max(np.abs(expected).max(), 1e-30))
        kind = name if name in ("output", "J") else "gradients"
        found[kind] = max(off, found.get(kind, 0.0))
    return found


def compare(cases: list[tuple[str, int]], size: int) -> list[dict[str, Any]]:
    """The figures of each case: of the single process, and the worst of the workers."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(single, (folder, cases), nprocs=1)
        mp.spawn(workers, (folder, cases, size), nprocs=size)
        for weights, length in cases:
            place = _place(folder, weights, length)
            parts = [_read(place / f"worker-{rank}.json") for rank in range(size)]
            row = {"weights": weights, "length": length, "single": _read(place / "single.json")}
            row["peak_mb"] = [part["peak_mb"] for part in parts]
            row |= {k: max(p[k] for p in parts) for k in ("seconds", "bytes", "messages")}
            row["differences"] = {
                kind: max(part["differences"][kind] for part in parts)
                for kind in parts[0]["differences"]
            }
            rows.append(row)
    return rows


def _place(folder: str, weights: str, length: int) -> Path:
    return Path(folder) / f"{weights}-{length}"


def _read(path: Path) -> Any:
    return json.loads(path.read_text())


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| weights | N | single: s | MB | each worker: s | MB | sent: bytes | messages "
        "| output off by | J | gradients |",
        "|---" * 11 + "|",
    ]
    for row in rows:
        megabytes = " and ".join(f"{peak:.0f}" for peak in row["peak_mb"])
        off = " | ".join(f"{row['differences'][kind]:.1e}" for kind in ("output", "J", "gradients"))
        lines.append(
            f"| {row['weights']} | {row['length']:,} | {row['single']['seconds']:.2f} "
            f"| {row['single']['peak_mb']:.0f} | {row['seconds']:.2f} | {megabytes} "
            f"| {row['bytes']:,} | {row['messages']} | {off} |"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lengths", default="10000,100000,1000000")
    parser.add_argument("--weights", default="data", help="between commas: data, free, tied")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    given = parser.parse_args()
    cases = [(w, int(n)) for w in given.weights.split(",") for n in given.lengths.split(",")]
    rows = compare(cases, given.workers)
    print(json.dumps(rows) if given.json else table(rows))
    exact = all(off < TOLERANCE for row in rows for off in row["differences"].values())
    sent = {(row["weights"], row["bytes"]) for row in rows}
    return 0 if exact and len(sent) == len({row["weights"] for row in rows}) else 1


if __name__ == "__main__":
    sys.exit(main())
