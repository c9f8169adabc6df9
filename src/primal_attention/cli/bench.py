"""`primal bench`. What needs torch is imported when the command runs."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from .options import AsJson, Heads, Option, Quiet, Width
from .settings import UsageError, usage

EPILOG = (
    "Examples: primal bench --attention softmax,primal:tied,linear --lengths 512:8192:x2; "
    "primal bench lra --out bench/table3; "
    "primal bench lra/text --batch-size 4 --attention softmax+primal,primal"
)


def bench(
    what: Annotated[
        str,
        typer.Argument(
            metavar="[WHAT]",
            help="block: attention with its projections. encoder: 2-layer classifier. lra/text, "
            "lra/listops, ...: the task's model. lra: all five tasks, as in the paper's Table 3.",
        ),
    ] = "block",
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
    option: Option = None,
    lengths: Annotated[
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
    width: Width = 64,
    heads: Heads = 2,
    rank: Annotated[
        int | None,
        typer.Option(
            help="Rank, for the attentions that have one.", show_default="20, or the task's"
        ),
    ] = None,
    batch_size: Annotated[
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
    cell_budget: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Time that one candidate may take at one length, 20s or 1m, all repeats together; "
            "what would take longer is skipped.",
            show_default="20s; for lra 60s",
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
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Measure time and memory of attentions against length: tables, CSV, JSON and pictures."""
    from ..bench import read_accuracies
    from ..bench.jobs import make_job
    from ..grammar import parse_options, parse_time
    from ..report.beside import draw_bench
    from . import FAILED, INTERRUPTED
    from .bench_watch import BenchWatch
    from .progress import Display
    from .show import console, show_json, show_rows, show_table, show_text

    if what == "lra" and accuracies:
        raise UsageError("--accuracies is given for lra; expected one task, such as lra/text")
    with usage():
        job = make_job(
            what, attention, lengths, options=parse_options(option or ()), mode=pass_, width=width,
            heads=heads, rank=rank, batch_size=batch_size, dtype=dtype, device=device,
            threads=threads, repeats=repeats,
            cell_budget=None if cell_budget is None else parse_time(cell_budget),
        )  # fmt: skip
    known = read_accuracies(accuracies or [])  # a wrong file is told before the work, not after
    with Display(console(stderr=True), quiet=quiet) as display:
        watch = BenchWatch(display)
        try:
            folder = job.run(out, watch=watch)
        except KeyboardInterrupt:
            display.close()
            if watch.folder is not None:
                command = f"{job.command} --out {shlex.quote(str(watch.folder))}"
                display.say(f"\ninterrupted; continue with: {command}")
            raise typer.Exit(INTERRUPTED) from None
        if what != "lra" and (note := draw_bench(folder, known)):
            display.say(note)
    found = job.summary(folder)
    if as_json:
        show_json({"folder": str(folder), **found.document})
    else:
        for title, (head, *rows) in found.tables.items():
            show_table(head, rows, title=title, numbers=True)
        show_text(*found.missing, found.legend.replace("`", ""))
        show_rows({"results": str(folder)})
    if not found.measured:
        raise typer.Exit(FAILED)
