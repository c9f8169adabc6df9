"""`primal learn`. What needs torch is imported when the command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import AsJson, Quiet
from .settings import usage

EPILOG = (
    "Examples: primal learn --length 2048 --seconds 120 --seeds 0-2 --out learn.jsonl; "
    "primal learn --attention softmax,primal:tied,feature_map=elu,none --eta 0.1 --curriculum"
)


def learn(
    task: Annotated[
        str,
        typer.Argument(
            metavar="[TASK]",
            help="lookup: find the value of a key among noise. counting: how often a token occurs.",
        ),
    ] = "lookup",
    *,
    attention: Annotated[
        str,
        typer.Option(help="What to compare, between commas, as in `primal bench`."),
    ] = "primal:tied,feature_map=elu,linear,softmax,none",
    length: Annotated[int, typer.Option(help="Positions of a sequence.")] = 512,
    seconds: Annotated[
        float, typer.Option(help="Time of one thread for each attention and seed.")
    ] = 60.0,
    seeds: Annotated[str, typer.Option(help="Seeds, 0-2 or 0,3,7.")] = "0",
    eta: Annotated[
        str, typer.Option(help="Weights of the KSVD loss for primal layers, between commas.")
    ] = "0",
    curriculum: Annotated[
        bool, typer.Option("--curriculum", help="Begin with short sequences, for all attentions.")
    ] = False,
    pairs: Annotated[
        int | None, typer.Option(help="Pairs of keys and values of lookup.", show_default="8")
    ] = None,
    queries: Annotated[
        int | None, typer.Option(help="Queries of lookup in a sequence.", show_default="4")
    ] = None,
    start: Annotated[
        str,
        typer.Option(
            help="Of queries and keys: own, as the attention has it; symmetric, with W_k = W_q; "
            "or independent."
        ),
    ] = "own",
    growth: Annotated[
        str,
        typer.Option(help="Of the KSVD loss: log, or square, which begins large."),
    ] = "log",
    rank: Annotated[int, typer.Option(help="Rank, for the attentions that have one.")] = 8,
    batch_size: Annotated[int, typer.Option(help="Sequences in a batch.")] = 8,
    lr: Annotated[float, typer.Option(help="Learning rate.")] = 2e-3,
    out: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="File of results; what it has is not run again."),
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Train a small network with each attention for equal time, on a task whose positions must find
    each other: accuracy against seconds."""
    import tempfile

    from ..bench.candidates import parse_candidates
    from ..bench.learning import Lesson, Point, make_lessons, run_lessons, summarise
    from ..grammar import parse_seeds
    from .show import console, show_json, show_table

    with usage():
        given = {"pairs": pairs, "queries": queries}
        options = tuple((name, number) for name, number in given.items() if number is not None)
        names = [one.text for one in parse_candidates(attention)]
        common = Lesson(
            attention=names[0], task=task, length=length, seconds=seconds, curriculum=curriculum,
            batch=batch_size, rank=rank, learning_rate=lr, start=start,
            growth=growth, task_options=options,
        )  # fmt: skip
        etas = [float(part) for part in eta.split(",")]
        lessons = make_lessons(names, parse_seeds(seeds), etas, common)

    def see(lesson: Lesson, point: Point) -> None:
        if not quiet:
            what = f"{lesson.attention}, eta {lesson.eta:g}, seed {lesson.seed}"
            how = f"{point.seconds:.0f} s, step {point.steps}, accuracy {point.accuracy:.3f}"
            console(stderr=True).print(f"{what}: {how}", highlight=False)

    with tempfile.TemporaryDirectory() as folder:
        found = run_lessons(lessons, out or Path(folder) / "lessons.jsonl", see)
    rows = summarise(lessons, found)
    if as_json:
        show_json(rows)
        return
    shares = [[f"{row[when]:.2f}" for when in ("quarter", "half", "end")] for row in rows]
    show_table(
        ["attention", "eta", "at a quarter", "at half", "at the end", "seeds", "steps"],
        [
            [
                row["attention"], f"{row['eta']:g}", *share,
                " ".join(f"{a:.2f}" for a in row["seeds"]), f"{row['steps']:.0f}",
            ]
            for row, share in zip(rows, shares, strict=True)
        ],
    )  # fmt: skip
