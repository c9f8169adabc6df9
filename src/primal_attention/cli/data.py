"""`primal data`: what is here, fetching what can be fetched, making what can be made."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from .options import AsJson, DataDir, Quiet
from .settings import UsageError, usage

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
    out: Annotated[
        Path | None, typer.Option(help="Where to put it.", show_default="DATA_DIR/SET")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Fetch a data set; every file is compared with its official checksum."""
    from ..names import unknown
    from ..tasks.cifar10 import get as get_cifar10
    from .progress import Display
    from .show import console

    if name != "cifar10":
        raise UsageError(unknown("data set to fetch:", name, ["cifar10"]))
    target = _target(out, data_dir, "cifar10")
    with Display(console(stderr=True), quiet=quiet) as display:
        print(get_cifar10(target, progress=display.say))


@generate_app.command(epilog="Example: primal data generate listops --data-dir ~/data")
def listops(
    data_dir: DataDir = None,
    out: Annotated[
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

    with usage():
        settings = ListOpsSettings(
            train=train, validation=validation, test=test, max_depth=max_depth, max_args=max_args,
            min_length=min_length, max_length=max_length, seed=seed,
        )  # fmt: skip
    target = _target(out, data_dir, "lra/listops-1000")
    _make(generate, "ListOps", target, settings, workers, quiet, PUBLISHED)


@generate_app.command(epilog="Example: primal data generate pathfinder --data-dir ~/data")
def pathfinder(
    data_dir: DataDir = None,
    out: Annotated[
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
    target = _target(out, data_dir, "lra/pathfinder32/curv_contour_length_14")
    _make(generate, "Pathfinder", target, settings, workers, quiet, PUBLISHED)


def _target(out: Path | None, data_dir: Path | None, name: str) -> Path:
    from ..tasks.folders import ENVIRONMENT, data_folder

    if out is not None:
        return out.expanduser()
    root = data_folder(data_dir)
    if root is None:
        raise UsageError(f"no folder is given; expected --out, --data-dir or {ENVIRONMENT}")
    return root / name


def _make(
    generate: Callable[..., Any],
    title: str,
    target: Path,
    settings: Any,
    workers: int | None,
    quiet: bool,
    published: dict[str, str],
) -> None:
    """Make a set, and print what was made next to what is published of the benchmark."""
    from .progress import Display
    from .show import console, show_rows

    with Display(console(stderr=True), quiet=quiet) as display:
        count = workers or os.cpu_count() or 1
        made = generate(target, settings, workers=count, progress=display.counter(title))
    rows = {"folder": str(target)}
    for name, value in made._asdict().items():
        several = isinstance(value, dict)
        rows[name] = ", ".join(f"{k} {v}" for k, v in value.items()) if several else str(value)
        if name in published:
            rows[name] += f" (published: {published[name]})"
    show_rows(rows)
