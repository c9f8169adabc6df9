"""`primal train` and `primal resume`: run, watch, draw, print."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import typer

from ..runs.files import read_json
from ..train import RunResult, SeedsResult, is_main_process, resume, train, train_seeds
from ..train.config import EngineConfig, config_of
from ..train.events import Observer
from ..train.loggers import Several, make_loggers
from . import FAILED, INTERRUPTED
from .progress import Display, Watch
from .settings import command_for, usage
from .show import console, rank_note, show_json, show_rows

Outcome = RunResult | SeedsResult


def new_run(
    config: EngineConfig,
    seeds: Sequence[int] | None,
    *,
    root: Path,
    name: str | None,
    log: str,
    quiet: bool,
    as_json: bool,
) -> None:
    """Train with one seed or with several, and print what came out."""
    note = rank_note(config.rank, config.width, config.heads)
    if note and "primal" in config.attention and not quiet and is_main_process():
        console(stderr=True).print(note, highlight=False)

    def work(observer: Observer) -> Outcome:
        if seeds is None:
            return train(config, root=root, name=name, observer=observer)
        return train_seeds(config, seeds, root=root, name=name, observer=observer)

    _finish(_watched(work, log, quiet, several=seeds is not None), as_json)


def old_run(run: Path, *, log: str, quiet: bool, as_json: bool) -> None:
    """Continue a run, or print what came out if it is finished."""
    several = not (run / "config.json").exists()
    _finish(_watched(lambda observer: resume(run, observer=observer), log, quiet, several), as_json)


def _watched(work: Callable[[Observer], Outcome], log: str, quiet: bool, several: bool) -> Outcome:
    """Run with progress on stderr, and loggers by name; Ctrl-C ends with the command that
    continues."""
    stderr, main = console(stderr=True), is_main_process()
    with usage():
        loggers = make_loggers(log) if main else []
    try:
        with Display(stderr, quiet=quiet or not main) as display:
            watch = Watch(display)
            return work(Several([watch, *loggers]) if loggers else watch)
    except KeyboardInterrupt:
        if watch.run is not None and main:
            command = ["primal", "resume", str(watch.run.parent if several else watch.run)]
            text = f"\ninterrupted; continue with: {shlex.join(command)}"
            stderr.print(text, highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(INTERRUPTED) from None


def _finish(outcome: Outcome, as_json: bool) -> None:
    """Draw and print; of several processes only the first does."""
    if not is_main_process():
        return
    results = outcome.results.values() if isinstance(outcome, SeedsResult) else [outcome]
    for result in results:
        _draw(result.run)
    first = next(iter(results))
    config = config_of(read_json(first.run / "config.json"))

    def command(*, rival: bool = False, **options: str) -> str:
        other = ("softmax" if "primal" in config.attention else "primal",)
        return command_for(config, other * len(config.attention) if rival else None, **options)

    if as_json:
        show_json({"run": str(outcome.run), **first.terms, **outcome.to_dict()})
    else:
        show_rows(outcome.rows(command))
    if isinstance(outcome, SeedsResult) and outcome.failed:
        raise typer.Exit(FAILED)


def _draw(run: Path) -> None:
    """Pictures beside the result. A run that is done does not fail for want of them."""
    try:
        from ..report.pictures import draw

        draw(run)
    except Exception as error:  # drivers of films fail in many ways, with types of their own
        console(stderr=True).print(f"no pictures: {error}", highlight=False, markup=False)
