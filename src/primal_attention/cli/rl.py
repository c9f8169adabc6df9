"""`primal data collect`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .data import Seed
from .options import Quiet
from .settings import UsageError, usage
from .show import console, show_rows

EPILOG = "Example: primal data collect invertedpendulum-medium --data-dir ~/data"


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
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Record episodes of policies in the real environment. What is interrupted goes on."""
    from ..tasks.folders import ENVIRONMENT, data_folder
    from ..tasks.rl.collect import TO_BE_TRAINED, prepare
    from ..tasks.rl.collect import collect as record
    from ..tasks.rl.policies import load_policy
    from ..tasks.rl.sac import train_sac
    from ..tasks.rl.sets import PREFIX, get_rl_task
    from .progress import Display

    with usage():
        task = get_rl_task(PREFIX + name.removeprefix(PREFIX))
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
