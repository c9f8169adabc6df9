"""`primal data`: what is here, fetching what can be fetched, making what can be made."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from .options import AsJson, DataDir, Quiet
from .settings import UsageError

data_app = typer.Typer(help="Which data sets are here; fetch or make some.", add_completion=False)
generate_app = typer.Typer(
    help="Make a data set by its published rules. An interrupted run goes on where it was.",
    no_args_is_help=True,
)
data_app.add_typer(generate_app, name="generate")

Seed = Annotated[int, typer.Option(min=0, help="Random seed.")]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Processes.", show_default="one for each processor")
]


@data_app.callback(invoke_without_command=True)
def show(context: typer.Context, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Which data sets are here, where they lie, and how to get the others."""
    if (command := context.invoked_subcommand) is not None:
        for option, is_given in (("--data-dir", data_dir is not None), ("--json", as_json)):
            if is_given:
                raise UsageError(
                    f"{option} stands before {command!r}; expected it after the whole command, if "
                    f"it has this option: primal data {command} --help"
                )
        return
    from ..tasks import data_status
    from .show import data_json, show_data, show_json

    found = data_status(data_dir)
    show_json(data_json(found)) if as_json else show_data(found)


@data_app.command(epilog="Example: primal data get cifar10 --data-dir ~/data")
def get(
    name: Annotated[str, typer.Argument(metavar="SET", help="What to fetch: cifar10.")],
    data_dir: DataDir = None,
    folder: Annotated[
        Path | None, typer.Option(help="Where to put it.", show_default="DATA_DIR/SET")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Fetch a data set; every file is compared with its official checksum."""
    from ..names import unknown
    from ..tasks.cifar10 import get as get_cifar10
    from .show import console

    if name != "cifar10":
        raise UsageError(unknown("data set to fetch:", name, ["cifar10"]))
    target = _target(folder, data_dir, "cifar10")
    lines = console(stderr=True)

    def say(line: str) -> None:
        lines.print(line, highlight=False, markup=False)

    print(get_cifar10(target, progress=None if quiet else say))


@generate_app.command(epilog="Example: primal data generate listops --data-dir ~/data")
def listops(
    data_dir: DataDir = None,
    folder: Annotated[
        Path | None, typer.Option(help="Where to put it.", show_default="DATA_DIR/lra/listops-1000")
    ] = None,
    train: Annotated[int, typer.Option(min=1, help="Training cases.")] = 96_000,
    validation: Annotated[int, typer.Option(min=1, help="Validation cases.")] = 2_000,
    test: Annotated[int, typer.Option(min=1, help="Test cases.")] = 2_000,
    max_depth: Annotated[int, typer.Option(min=2, help="Greatest depth of a tree.")] = 10,
    max_args: Annotated[int, typer.Option(min=2, help="Most arguments of an operator.")] = 10,
    min_length: Annotated[int, typer.Option(min=0, help="Cases are longer.")] = 500,
    max_length: Annotated[int, typer.Option(min=2, help="Cases are shorter.")] = 2_000,
    seed: Seed = 0,
    workers: Workers = None,
    quiet: Quiet = False,
) -> None:
    """ListOps: nested lists of digits and operators, and their values."""
    from ..tasks.lra.listops_generate import PUBLISHED, generate
    from ..tasks.lra.listops_trees import ListOpsSettings

    try:
        settings = ListOpsSettings(
            train=train, validation=validation, test=test, max_depth=max_depth, max_args=max_args,
            min_length=min_length, max_length=max_length, seed=seed,
        )  # fmt: skip
    except ValueError as error:
        raise UsageError(str(error)) from error
    target = _target(folder, data_dir, "lra/listops-1000")
    with progress_bar("ListOps", quiet) as bar:
        made = generate(target, settings, workers=_workers(workers), progress=bar)
    _report(target, made._asdict(), PUBLISHED)


@generate_app.command(epilog="Example: primal data generate pathfinder --data-dir ~/data")
def pathfinder(
    data_dir: DataDir = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            help="Where to put it.",
            show_default="DATA_DIR/lra/pathfinder32/curv_contour_length_14",
        ),
    ] = None,
    pictures: Annotated[int, typer.Option(min=10, help="Number of pictures.")] = 200_000,
    seed: Seed = 0,
    workers: Workers = None,
    quiet: Quiet = False,
) -> None:
    """Pathfinder: are two dots joined by a dashed line? Pictures of 32 x 32."""
    from ..tasks.lra.pathfinder_generate import PUBLISHED, PathfinderSettings, generate

    settings = PathfinderSettings(pictures=pictures, seed=seed)
    target = _target(folder, data_dir, "lra/pathfinder32/curv_contour_length_14")
    with progress_bar("Pathfinder", quiet) as bar:
        made = generate(target, settings, workers=_workers(workers), progress=bar)
    _report(target, made._asdict(), PUBLISHED)


def _target(folder: Path | None, data_dir: Path | None, name: str) -> Path:
    from ..tasks.folders import ENVIRONMENT, data_folder

    if folder is not None:
        return folder.expanduser()
    root = data_folder(data_dir)
    if root is None:
        raise UsageError(f"no folder is given; expected --folder, --data-dir or {ENVIRONMENT}")
    return root / name


def _workers(given: int | None) -> int:
    return given or os.cpu_count() or 1


def _report(target: Path, facts: dict[str, Any], published: dict[str, str]) -> None:
    """What was made, next to what is published of the benchmark."""
    from .show import show_rows

    rows = {"folder": str(target)}
    for name, value in facts.items():
        several = isinstance(value, dict)
        rows[name] = ", ".join(f"{k} {v}" for k, v in value.items()) if several else str(value)
        if name in published:
            rows[name] += f" (published: {published[name]})"
    show_rows(rows)


@contextmanager
def progress_bar(title: str, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A live bar on a terminal, a line for every tenth elsewhere."""
    if quiet:
        yield None
        return
    from rich.progress import Progress

    from .show import console

    lines = console(stderr=True)
    if lines.is_terminal:
        with Progress(console=lines, transient=True) as live:
            bar = live.add_task(title)
            yield lambda done, total: live.update(bar, completed=done, total=total)
        return
    told = -1

    def tell(done: int, total: int) -> None:
        nonlocal told
        if 10 * done // total > told:
            told = 10 * done // total
            lines.print(f"{title}: {done} of {total} parts", highlight=False)

    yield tell
