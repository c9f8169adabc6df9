"""`primal bench`: its options. What needs torch is imported when the command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

EPILOG = (
    "Examples: primal bench --attention softmax,primal:tied,linear --length 512:8192:x2; "
    "primal bench lra --out bench/table3; "
    "primal bench lra/text --batch 4 --attention softmax+primal,primal"
)


def bench(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="[WHAT]",
            show_default="block",
            help="block: attention with its projections. encoder: 2-layer classifier. lra/text, "
            "lra/listops, ...: the task's model. lra: all five tasks, as in the paper's Table 3.",
        ),
    ] = None,
    *,
    attention: Annotated[
        str | None,
        typer.Option(
            help="What to compare, between commas: a name of the registry, with a kind "
            "(primal:tied) or options (performer:features=128), softmax:materialised, floor; for "
            "models also one for each layer (softmax+primal). softmax and floor, which ratios "
            "refer to, are always among them; for lra, both kinds of softmax.",
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
    rank: Annotated[
        int | None,
        typer.Option(
            help="Rank, for the attentions that have one.", show_default="20, or the task's"
        ),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(
            help="Sequences in a batch.",
            show_default="1, or the task's; for lra an eighth of it",
        ),
    ] = None,
    dtype: Annotated[str, typer.Option(help="float32, float64, bfloat16 or float16.")] = "float32",
    device: Annotated[str, typer.Option(help="cpu, cuda, mps, ...")] = "cpu",
    threads: Annotated[int, typer.Option(help="Threads of torch.")] = 2,
    repeats: Annotated[
        int | None,
        typer.Option(help="Rounds; the median counts.", show_default="5; for lra 3"),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            help="Seconds that one candidate may take at one length, all repeats together; what "
            "would take longer is skipped.",
            show_default="20; for lra 60",
        ),
    ] = None,
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
    what = what or "block"
    common: dict[str, Any] = {
        "mode": pass_, "width": width, "heads": heads, "dtype": dtype, "device": device,
        "threads": threads,
    }  # fmt: skip
    own: dict[str, Any] = {"batch": batch, "rank": rank, "repeats": repeats, "budget": budget}
    if what == "lra":
        from .bench_arena import arena_plan, measure_arena
        from .settings import UsageError

        if accuracies:
            raise UsageError("--accuracies is given for lra; expected one task, such as lra/text")
        tasks = arena_plan(attention, length, **own, **common)
        measure_arena(tasks, out, quiet=quiet, as_json=as_json)
        return
    from .bench_run import measure, plan_for

    plan = plan_for(attention, length, what=what, **own, **common)
    measure(plan, out, accuracies or [], quiet=quiet, as_json=as_json)
