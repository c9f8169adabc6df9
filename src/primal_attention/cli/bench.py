"""`primal bench`: its options. What needs torch is imported when the command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EPILOG = (
    "Example: primal bench --attention softmax,primal:tied,linear --length 512:8192:x2 "
    "--pass training --out bench/first"
)


def bench(
    *,
    attention: Annotated[
        str | None,
        typer.Option(
            help="What to compare, between commas: a name of the registry, with a kind "
            "(primal:tied) or options (performer:features=128), softmax:materialised, floor. "
            "softmax and floor, which ratios refer to, are always among them.",
            show_default="everything",
        ),
    ] = None,
    length: Annotated[
        str | None,
        typer.Option(
            help="Lengths: first:last:xK, or numbers between commas.",
            show_default="512:65536:x2, or the task's",
        ),
    ] = None,
    what: Annotated[
        str,
        typer.Option(
            help="block: attention with its projections. encoder: 2-layer classifier. lra/text, "
            "lra/listops, ...: the task's model."
        ),
    ] = "block",
    pass_: Annotated[
        str,
        typer.Option(
            "--pass",
            help="forward: without gradients. training: forward and backward, with the KSVD loss "
            "where there is one; of an encoder with the optimiser.",
        ),
    ] = "training",
    width: Annotated[int, typer.Option(help="Width of the sequences.")] = 64,
    heads: Annotated[int, typer.Option(help="Attention heads.")] = 2,
    rank: Annotated[int, typer.Option(help="Rank, for the attentions that have one.")] = 20,
    batch: Annotated[
        int | None,
        typer.Option(help="Sequences in a batch.", show_default="1, or the task's"),
    ] = None,
    dtype: Annotated[str, typer.Option(help="float32, float64, bfloat16 or float16.")] = "float32",
    device: Annotated[str, typer.Option(help="cpu, cuda, mps, ...")] = "cpu",
    threads: Annotated[int, typer.Option(help="Threads of torch.")] = 2,
    repeats: Annotated[int, typer.Option(help="Rounds; the median counts.")] = 5,
    budget: Annotated[
        float,
        typer.Option(
            help="Seconds that one candidate may take at one length, all repeats together; what "
            "would take longer is skipped."
        ),
    ] = 20.0,
    accuracies: Annotated[
        list[Path] | None,
        typer.Option(
            exists=True,
            help="Accuracies for the chart of accuracy against speed: JSON {name: accuracy}, CSV, "
            "or a folder with runs. May be given several times.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            file_okay=False,
            help="Folder of the results. If it has some with the same settings, they are kept.",
            show_default="a new one under bench",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure time and memory of attentions against length: tables, CSV, JSON and pictures."""
    from .bench_run import measure, plan_for

    plan = plan_for(
        attention, length, budget,
        what=what, mode=pass_, width=width, heads=heads, rank=rank, batch=batch, dtype=dtype,
        device=device,
        threads=threads, repeats=repeats,
    )  # fmt: skip
    measure(plan, out, accuracies or [], quiet=quiet, as_json=as_json)
