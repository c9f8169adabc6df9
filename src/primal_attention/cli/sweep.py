"""`primal sweep`: its options, and what it prints. What needs torch is imported when it runs."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..grammar import parse_seeds
from .options import USUAL_ATTENTION, AsJson, DataDir, Layers, Protocol, Quiet, Recipe
from .settings import resolve_words, usage

if TYPE_CHECKING:
    from ..train.sweep import Place, Point

EPILOG = (
    "Example: primal sweep uea/JapaneseVowels rank=20,30,40 eta=0,0.1,0.2,0.5 --recipe paper "
    "--workers 2"
)

Workers = Annotated[int, typer.Option(min=1, help="Processes on this machine.")]
Cluster = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Run on a Ray cluster: auto, HOST:PORT or ray://HOST:PORT. All nodes must see the "
        "folder of the results.",
    ),
]
Cpus = Annotated[float, typer.Option(help="CPUs of a run on a cluster.")]
Gpus = Annotated[float, typer.Option(help="GPUs of a run on a cluster.")]


def sweep(
    task: Annotated[
        str, typer.Argument(metavar="TASK", help="A task, such as uea/JapaneseVowels.")
    ],
    settings: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=VALUES...",
            help="What to vary, rank=20,30,40 or performer.features=64,128, or to fix, epochs=50; "
            "with --search also ranges, lr=1e-4:1e-2:log.",
        ),
    ],
    *,
    attention: Annotated[
        str | None,
        typer.Option(
            help="One name for all layers, or one for each: softmax,primal.",
            show_default=USUAL_ATTENTION,
        ),
    ] = None,
    layers: Layers = None,
    recipe: Recipe = None,
    protocol: Protocol = None,
    seeds: Annotated[str, typer.Option(help="Seeds of every point, 0-4 or 0,3,7.")] = "0",
    search: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Search N points instead of the grid (extra search)."
        ),
    ] = None,
    early_stop: Annotated[
        bool, typer.Option(help="Stop runs that are below the median of the others.")
    ] = True,
    retry: Annotated[bool, typer.Option("--retry", help="Try again what failed.")] = False,
    workers: Workers = 1,
    cluster: Cluster = None,
    cpus: Cpus = 1,
    gpus: Gpus = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            file_okay=False,
            help="Folder of the results; what is done in it is not done again.",
            show_default="sweeps/TASK",
        ),
    ] = None,
    data_dir: DataDir = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Train over a grid of settings, or search in it: one store, resumable, a map as in Table 6."""
    from ..report.beside import write_sweep
    from ..train.sweep import Store, best, grid, parse_space, run_sweep, trials
    from . import FAILED
    from .show import show_json

    base = resolve_words(task, attention, layers, recipe, protocol, data_dir)
    with usage():
        space, chosen = parse_space(settings, type(base)), parse_seeds(seeds)
        if search is None:
            trials(base, grid(space), chosen)  # a wrong one is told before a folder is made
    store = Store(out or Path("sweeps") / re.sub(r"[^\w.+-]+", "-", task))
    with sweeping(workers, cluster, cpus, gpus, quiet=quiet) as place:
        configs = run_sweep(
            base, space, chosen, store,
            place=place, count=search, early_stop=early_stop, retry=retry,
        )  # fmt: skip
    points, written = write_sweep(configs, space, store)
    chosen_point = best(points)
    if as_json:
        show_json(
            {
                "points": [dataclasses.asdict(point) for point in points],
                "best": None if chosen_point is None else dict(chosen_point.settings),
                "files": [str(path) for path in written],
            }
        )
    else:
        _show(points, chosen_point, written, getattr(base, "protocol", None))
    if all(point.finished == 0 for point in points):
        raise typer.Exit(FAILED)


@contextmanager
def sweeping(
    workers: int, cluster: str | None, cpus: float, gpus: float, *, quiet: bool
) -> Iterator[Place]:
    """The place that a command line names, with a line on stderr for every run that ends."""
    from ..train.sweep import Place
    from .progress import Display, Watch
    from .show import console

    with Display(console(stderr=True), quiet=quiet) as display:
        try:
            yield Place(workers, cluster, cpus, gpus, Watch(display), display.say)
        except KeyboardInterrupt:
            display.say("\ninterrupted; the same command goes on where it stopped")
            raise


def _show(
    points: Sequence[Point], chosen: Point | None, written: Sequence[Path], protocol: str | None
) -> None:
    """A run without a protocol, that learns to act, has a normalised score after its last epoch."""
    from .show import show_rows, show_table

    split = {None: "", "paper": "test"}.get(protocol, "validation")
    rows = []
    for point in points:
        accuracy = "" if point.accuracy is None else _percent(point.accuracy, split)
        if point.deviation is not None:
            accuracy += f" ± {100 * point.deviation:.1f}"
        selected = _percent(point.selected, split) if split and point.selected is not None else ""
        values = map(str, point.settings.values())
        rows.append([*values, accuracy, selected, point.state, point.reason or ""])
    heads = [*points[0].settings, "accuracy" if split else "score", split, "runs", ""]
    show_table(heads, rows)
    facts = {}
    if chosen is not None:
        settings = " ".join(f"{name}={value}" for name, value in chosen.settings.items())
        facts["best"] = f"{settings}, by {f'{split} accuracy' if split else 'score'}"
    show_rows(facts | {"wrote": ", ".join(str(path) for path in written)})


def _percent(share: float, split: str) -> str:
    return f"{100 * share:.1f} %" if split else f"{100 * share:.1f}"
