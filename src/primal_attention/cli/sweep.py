"""`primal sweep`: its options, and what it prints. What needs torch is imported when it runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import (
    USUAL_ATTENTION,
    AsJson,
    DataDir,
    Layers,
    Protocol,
    Quiet,
    Recipe,
    parse_attention,
    parse_seeds,
    usual_attention,
)

if TYPE_CHECKING:
    from ..train.config import EngineConfig
    from ..train.sweep import Outcome, Point, Store, Terms
    from ..train.sweep.runner import Found, More
    from ..train.sweep.space import Space

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
            help="What to vary, rank=20,30,40, or to fix, epochs=50; with --search also ranges, "
            "lr=1e-4:1e-2:log.",
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
    from ..tasks import get_task
    from ..train.sweep import MedianRule, Store, Terms, grid, parse_space, reopen, trials
    from .settings import UsageError

    base = _base(task, attention, layers, recipe, protocol, data_dir)
    objective = get_task(task).objective
    try:
        space, chosen = parse_space(settings, type(base)), parse_seeds(seeds)
        configs: list[EngineConfig] = [] if search else trials(base, grid(space), chosen)
    except ValueError as error:
        raise UsageError(str(error)) from error
    store = Store(out or Path("sweeps") / re.sub(r"[^\w.+-]+", "-", task))
    terms = Terms(rule=MedianRule() if early_stop and objective.stops_early else None)
    place = Place(workers, cluster, cpus, gpus, quiet=quiet)

    def run(configs: Sequence[EngineConfig], more: More | None = None) -> None:
        if retry:
            reopen(configs, store)
        place(configs, store, terms, more)

    if search:
        from ..train.sweep.search import search as search_points

        configs = search_points(base, space, chosen, store, run, count=search)
    else:
        run(configs)
    _finish(configs, space, store, as_json)


def _base(
    task: str,
    attention: str | None,
    layers: int | None,
    recipe: str | None,
    protocol: str | None,
    data_dir: Path | None,
) -> EngineConfig:
    """The settings that all runs share."""
    from .settings import UsageError, resolve

    given: dict[str, Any] = {} if data_dir is None else {"data_dir": str(data_dir.absolute())}
    if protocol is not None:
        given["protocol"] = protocol
    try:
        names = parse_attention(usual_attention(task) if attention is None else attention, layers)
    except ValueError as error:
        raise UsageError(str(error)) from error
    return resolve(task, names, recipe, **given)


class Place:
    """Does runs where the command line says: in this process, in several, or on a cluster."""

    def __init__(
        self, workers: int, cluster: str | None, cpus: float, gpus: float, *, quiet: bool
    ) -> None:
        self.workers, self.cluster, self.cpus, self.gpus = workers, cluster, cpus, gpus
        self.quiet = quiet

    def __call__(
        self, configs: Sequence[EngineConfig], store: Store, terms: Terms, more: More | None = None
    ) -> None:
        """Do what is open, and then what `more` gives, with a line on stderr for every run that
        ends."""
        from ..train.sweep.configs import key_of
        from .show import console

        stderr = console(stderr=True)
        names = {key_of(config) for config in configs}
        ended = 0

        def found(outcome: Outcome) -> None:
            nonlocal ended
            if outcome.fingerprint in names and not self.quiet:
                ended += outcome.status != "paused"
                known = "in all" if more is None else "so far"
                text = f"{describe(outcome)} ({ended} ended, {len(names)} {known})"
                stderr.print(text, highlight=False, markup=False, soft_wrap=True)

        def asked(places: int) -> Sequence[EngineConfig]:
            new = [] if more is None else more(places)
            names.update(key_of(config) for config in new)
            return new

        try:
            self._work(configs, store, terms, found, asked)
        except KeyboardInterrupt:
            text = "\ninterrupted; the same command goes on where it stopped"
            stderr.print(text, highlight=False, markup=False)
            raise

    def _work(
        self,
        configs: Sequence[EngineConfig],
        store: Store,
        terms: Terms,
        found: Found,
        more: More,
    ) -> None:
        if self.cluster is not None:
            from ..train.sweep.cluster import work_on_cluster

            work_on_cluster(
                configs, store, terms,
                address=self.cluster, cpus=self.cpus, gpus=self.gpus, found=found, more=more,
            )  # fmt: skip
            return
        self._work_here(configs, store, terms, found)
        while new := more(self.workers):
            self._work_here(new, store, terms, found)

    def _work_here(
        self, configs: Sequence[EngineConfig], store: Store, terms: Terms, found: Found
    ) -> None:
        from ..train.sweep import work, work_in_processes
        from .progress import watch
        from .show import console

        if self.workers > 1:
            work_in_processes(configs, store, terms, workers=self.workers, found=found)
        else:
            observer = watch(console(stderr=True), quiet=self.quiet)

            def after(outcome: Outcome) -> None:
                observer.close()  # the live line makes room
                found(outcome)

            try:
                work(configs, store, terms, observer=observer, found=after)
            finally:
                observer.close()


def describe(outcome: Outcome) -> str:
    """One line about a run that ended."""
    config = outcome.settings
    name = f"{config.get('task')} {'+'.join(config.get('attention', ()))}"
    if "primal" in config.get("attention", ()):
        name += f" rank {config.get('rank')} eta {config.get('eta')}"
    name += f" seed {config.get('seed')}"
    if outcome.accuracy is not None and outcome.cases is None:
        return f"{name}: score {100 * outcome.accuracy:.1f}"
    if outcome.accuracy is not None:
        return f"{name}: {100 * outcome.accuracy:.1f} %"
    return f"{name}: {outcome.status}: {outcome.reason}"


# -- output --------------------------------------------------------------------------------------


def _finish(configs: Sequence[EngineConfig], space: Space, store: Store, as_json: bool) -> None:
    """Write results.csv and the map, and print them."""
    from ..runs.files import explained, write_bytes
    from ..train.sweep import best, make_map, points_csv, summarise, varied

    names = varied(space) or list(space)
    points = summarise(configs, names, store.outcomes())
    files = {"results.csv": points_csv(points)}
    if len(names) >= 2:
        found = make_map(points, *names[:2])
        files["map.csv"] = found.csv()
    with explained(f"write into {store.root}"):
        for name, text in files.items():
            write_bytes(store.root / name, text.encode())
    written = [store.root / name for name in files]
    if len(names) >= 2 and find_spec("matplotlib") and any(p.finished for p in points):
        from ..report.sweep_figures import sweep_map

        written += sweep_map(found, store.root / "map", title=configs[0].task)
    chosen = best(points)
    if as_json:
        _show_json(points, chosen, written)
    else:
        _show(points, chosen, written, getattr(configs[0], "protocol", None))
    if all(point.finished == 0 for point in points):
        from . import FAILED

        raise typer.Exit(FAILED)


def _show_json(points: Sequence[Point], chosen: Point | None, written: Sequence[Path]) -> None:
    import dataclasses

    from .show import show_json

    show_json(
        {
            "points": [dataclasses.asdict(point) for point in points],
            "best": None if chosen is None else dict(chosen.settings),
            "files": [str(path) for path in written],
        }
    )


def _show(
    points: Sequence[Point], chosen: Point | None, written: Sequence[Path], protocol: str | None
) -> None:
    """A run without a protocol, that learns to act, has a normalised score after its last epoch."""
    from rich.table import Table

    from .show import console, show_rows

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    split = {None: "", "paper": "test"}.get(protocol, "validation")
    unit = " %" if split else ""
    for column in (*points[0].settings, "accuracy" if split else "score", split, "runs", ""):
        table.add_column(column, overflow="fold")
    for point in points:
        accuracy = "" if point.accuracy is None else f"{100 * point.accuracy:.1f}{unit}"
        if point.deviation is not None:
            accuracy += f" ± {100 * point.deviation:.1f}"
        selected = ""
        if split and point.selected is not None:
            selected = f"{100 * point.selected:.1f} %"
        values = (f"{value}" for value in point.settings.values())
        table.add_row(*values, accuracy, selected, point.state, point.reason or "")
    console().print(table, highlight=False, markup=False)
    rows = {}
    if chosen is not None:
        settings = " ".join(f"{name}={value}" for name, value in chosen.settings.items())
        rows["best"] = f"{settings}, by {f'{split} accuracy' if split else 'score'}"
    show_rows(rows | {"wrote": ", ".join(str(path) for path in written)})
