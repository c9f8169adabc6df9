"""`primal train rl/...`, `primal resume` of such runs, and `primal data collect`."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from ..train.decision import (
    DecisionConfig,
    DecisionEpoch,
    DecisionObserver,
    DecisionResult,
    DecisionSeeds,
    DecisionStart,
    resume_decision,
    train_decision,
    train_decision_seeds,
)
from . import FAILED, INTERRUPTED
from .settings import UsageError
from .show import console, show_json, show_rows

COLLECTION = "Example: primal data collect invertedpendulum-medium --data-dir ~/data"
Outcome = DecisionResult | DecisionSeeds
PLAIN_SECONDS = 5.0  # between lines


class Lines(DecisionObserver):
    """A line on stderr after an epoch; remembers where the run lies."""

    def __init__(self, stderr: Console | None) -> None:
        self._stderr, self._told = stderr, 0.0
        self.run: Path | None = None

    def run_started(self, start: DecisionStart) -> None:
        self.run = start.run
        config = start.config
        kind = "" if config.conditioned else ", behaviour cloning"
        done = f", from step {start.step}" if start.step else ""
        self._line(
            f"{config.task}, {' + '.join(config.attention)}{kind}, seed {config.seed}: "
            f"{start.parameters:,} parameters, {start.data_episodes} episodes, "
            f"{start.data_steps:,} steps recorded, {start.steps} steps to train{done}\n{start.run}"
        )

    def epoch(self, event: DecisionEpoch) -> None:
        now = time.monotonic()
        if event.epoch < event.epochs and now - self._told < PLAIN_SECONDS:
            return
        self._told = now
        ksvd = "" if event.ksvd_loss is None else f" KSVD {event.ksvd_loss:.3g}"
        self._line(
            f"epoch {event.epoch}/{event.epochs}  action {event.task_loss:.4f}{ksvd}  "
            f"return {event.returned:.1f} ± {event.deviation:.1f}  score {event.score:.1f}"
        )

    def _line(self, text: str) -> None:
        if self._stderr is not None:
            self._stderr.print(text, highlight=False, markup=False, soft_wrap=True)


def resolve_rl(task: str, attention: tuple[str, ...], **given: Any) -> DecisionConfig:
    """The settings of a run: the defaults, then those given."""
    try:
        config = DecisionConfig.from_dict({"task": task, "attention": attention} | given)
        config.validate()
    except ValueError as error:
        raise UsageError(str(error)) from error
    return config


def new_rl_run(
    config: DecisionConfig,
    seeds: Sequence[int] | None,
    *,
    root: Path,
    name: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Train with one seed or with several, and print what came out."""

    def work(observer: DecisionObserver) -> Outcome:
        if seeds is None:
            return train_decision(config, root=root, name=name, observer=observer)
        return train_decision_seeds(config, seeds, root=root, name=name, observer=observer)

    _finish(_watched(work, quiet, several=seeds is not None), as_json)


def old_rl_run(run: Path, *, quiet: bool, as_json: bool) -> None:
    """Continue a run, or print what came out if it is finished."""
    several = not (run / "config.json").exists()
    work = _watched(lambda observer: resume_decision(run, observer=observer), quiet, several)
    _finish(work, as_json)


def _watched(work: Callable[[DecisionObserver], Outcome], quiet: bool, several: bool) -> Outcome:
    stderr = console(stderr=True)
    lines = Lines(None if quiet else stderr)
    try:
        return work(lines)
    except KeyboardInterrupt:
        if lines.run is not None:
            command = ["primal", "resume", str(lines.run.parent if several else lines.run)]
            text = f"\ninterrupted; continue with: {shlex.join(command)}"
            stderr.print(text, highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(INTERRUPTED) from None


def _finish(outcome: Outcome, as_json: bool) -> None:
    """Picture an episode of every run and print what came out."""
    finished = [outcome] if isinstance(outcome, DecisionResult) else outcome.results.values()
    for result in finished:
        _picture(result.run)
    if as_json:
        show_json({"run": str(outcome.run), **outcome.to_dict()})
    elif isinstance(outcome, DecisionResult):
        show_rows(_rows(outcome) | {"run": str(outcome.run)})
    else:
        results = outcome.results
        mean = f"{outcome.mean:.1f}"
        if outcome.deviation is not None and outcome.interval is not None:
            low, high = outcome.interval
            mean += f" ± {outcome.deviation:.1f}, 95 % interval of the mean {low:.1f} to {high:.1f}"
        each = (f"{seed}: {result.score:.1f}" for seed, result in results.items())
        rows = {"score": mean, "seeds": ", ".join(each), "run": str(outcome.run)}
        rows |= {f"seed {seed}": f"failed: {reason}" for seed, reason in outcome.failed.items()}
        show_rows(_rows(next(iter(results.values()))) | rows if len(results) == 1 else rows)
    if isinstance(outcome, DecisionSeeds) and outcome.failed:
        raise typer.Exit(FAILED)


def _picture(run: Path) -> None:
    """An episode beside the result: a film, or a plot where there is no renderer. A run that is
    done does not fail for want of a picture."""
    if any((run / name).exists() for name in ("episode.gif", "episode.png")):
        return
    try:
        from ..report.episode_figure import episode
        from ..tasks.rl import get_rl_task, make_agent
        from ..tasks.rl.film import film, play
        from ..train.decision import load_decision_model, read_decision_config

        config = read_decision_config(run)
        environment = get_rl_task(config.task).environment
        agent = make_agent(load_decision_model(run), stream=config.stream)
        screen = {"MUJOCO_GL", "DISPLAY"} & set(os.environ)  # without them a renderer may abort
        if not screen or not film(agent, environment, run / "episode.gif", target=config.target):
            played = play(agent, environment, target=config.target)
            episode(played, environment, run / "episode", formats=["png"])
    except Exception as error:  # drivers fail in many ways, with types of their own
        console(stderr=True).print(f"no picture: {error}", highlight=False, markup=False)


def _rows(result: DecisionResult) -> dict[str, str]:
    episodes = len(result.returns)
    return {
        "return": f"{result.returned:.1f} ± {result.deviation:.1f} over {episodes} episodes after "
        f"the last epoch, asked for {result.target:.0f}",
        "score": f"{result.score:.1f}  (0 random, 100 expert)",
        "data": f"mean return {result.data_mean:.1f}, best decile from {result.best_decile:.1f}",
        "agent": f"{result.decisions_per_second:.0f} actions a second",
        "model": f"{result.parameters:,} parameters",
        "cost": f"{result.seconds:.1f} s, peak memory {result.peak_memory_mb:.0f} MB",
    }


def collect(
    name: Annotated[
        str, typer.Argument(metavar="SET", help="What to record, such as invertedpendulum-medium.")
    ],
    data_dir: Annotated[
        Path | None,
        typer.Option(
            file_okay=False,
            help="Folder with data sets.",
            show_default="from the variable PRIMAL_ATTENTION_DATA",
        ),
    ] = None,
    episodes: Annotated[int, typer.Option(min=1, help="Episodes to record.")] = 300,
    policies: Annotated[
        Path | None,
        typer.Option(
            exists=True, file_okay=False, help="Folder with policy files; the pendulum needs none."
        ),
    ] = None,
    algorithms: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Whose policies take turns, such as sac,sac,tqc.",
            show_default="by the kind of set",
        ),
    ] = None,
    train_steps: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="First train the medium policy (SAC) for so many steps; "
            "it and others are looked for in DATA_DIR/policies.",
        ),
    ] = None,
    form: Annotated[str, typer.Option(help="minari or d4rl.")] = "minari",
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")] = False,
) -> None:
    """Record episodes of policies in the real environment. What is interrupted goes on."""
    from ..tasks.folders import ENVIRONMENT, data_folder
    from ..tasks.rl import get_rl_task
    from ..tasks.rl.collect import TO_BE_TRAINED, prepare
    from ..tasks.rl.collect import collect as record
    from ..tasks.rl.policies import load_policy
    from ..tasks.rl.sac import train_sac
    from .progress import Display

    try:
        task = get_rl_task(name if name.startswith("rl/") else f"rl/{name}")
    except ValueError as error:
        raise UsageError(str(error)) from error
    folder = data_folder(data_dir)
    if folder is None:
        raise UsageError(f"no folder is given; expected --data-dir or {ENVIRONMENT}")
    turns = None if algorithms is None else algorithms.split(",")
    trained = None
    if train_steps is not None:
        if policies is not None:
            raise UsageError("--policies and --train-steps are both given; expected one of them")
        policies = folder / "policies"
        # what is wrong with the recording shall not be found out after hours of training
        prepare(task, folder, policies=policies, algorithms=turns, trained=TO_BE_TRAINED, form=form)
        with Display(console(stderr=True), quiet=quiet) as display:
            bar = display.counter(f"SAC in {task.environment.id}")
            path = train_sac(task.environment, policies, steps=train_steps, seed=seed, progress=bar)
        console(stderr=True).print(str(path), highlight=False, markup=False)
        trained = load_policy(path)
    with Display(console(stderr=True), quiet=quiet) as display:
        made = record(
            task, folder, episodes=episodes, seed=seed, policies=policies, algorithms=turns,
            trained=trained, form=form, progress=display.counter(task.name),
        )  # fmt: skip
    show_rows(
        {
            "folder": str(made.path),
            "episodes": f"{made.episodes}, {made.steps:,} steps",
            "returns": f"mean {made.mean:.1f}, best decile from {made.best_decile:.1f}",
        }
    )
