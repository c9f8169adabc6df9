"""Record episodes of policies as a data set: medium, medium-replay and medium-expert.

The names are D4RL's and so is the idea, the policies are not: a *medium* set has the episodes of
one policy that is far from perfect, *medium-expert* as many of a good one on top, and in
*medium-replay* each episode has a share of random actions, from none to all. Figures obtained on
such sets cannot be compared with figures on D4RL's files.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...names import check_choice
from ...runs.files import replacing
from ..base import DataError
from .environments import Environment, make_environment
from .extra import need
from .files import write_d4rl
from .policies import Diluted, LinearPolicy, Policy, digest, for_episode, load_policy
from .sets import COLLECTED, LEVELS, RLTask
from .trajectories import Booleans, Floats, Trajectories

Progress = Callable[[int, int], None]  # done, of how many
PART = 10  # episodes of a part: what an interruption can cost
FORMATS = ("minari", "d4rl")

# The algorithms whose policies play the parts, first choice first; SAC is what we train ourselves.
MEDIUM = {"hopper": ("sac",), "halfcheetah": ("ars", "sac"), "walker2d": ("ars", "sac")}
EXPERT = {"hopper": ("tqc",), "halfcheetah": ("tqc",), "walker2d": ("trpo",)}
# Linear feedback of (position, angle, velocity, angular velocity), in units of the greatest force:
# the medium one lets the cart drift until it hits the end.
PENDULUM = {
    "medium": LinearPolicy(np.array([[0.0, 10.0, 0.0, 1.0]]) / 3.0, noise=0.2),
    "expert": LinearPolicy(np.array([[1.0, 15.0, 1.2, 2.5]]) / 3.0, noise=0.2),
}
TO_BE_TRAINED = LinearPolicy(np.zeros((1, 1)))


class Recording(NamedTuple):
    """The steps of episodes, as in Trajectories, and the states that the episodes ended in."""

    observations: Floats
    actions: Floats
    rewards: Floats
    terminals: Booleans
    timeouts: Booleans
    last_observations: Floats  # (episodes, state_dim)

    def trajectories(self, name: str) -> Trajectories:
        return Trajectories(name, *self[:5])


@dataclass(frozen=True)
class Collection:
    """What was recorded."""

    path: Path
    episodes: int
    steps: int
    mean: float  # of the returns
    best_decile: float


def collect(
    task: RLTask,
    folder: Path | str,
    *,
    episodes: int = 500,
    seed: int = 0,
    policies: Path | str | None = None,
    algorithms: Sequence[str] | None = None,
    trained: Policy | None = None,
    form: str = "minari",
    progress: Progress | None = None,
) -> Collection:
    """Record `episodes` episodes for a task under a data folder, where `task.load` finds them.

    `policies` is a folder of policy files, <algorithm>-<environment>*.npz; InvertedPendulum has
    policies of its own and needs none. `algorithms` says whose policies take turns, one that is
    named twice plays twice as often; None leaves it to the level of the task. `trained` is a SAC
    policy that was trained for this recording: it plays the medium part, or that of "sac" among the
    algorithms, whatever lies in the folder. In a medium-replay set all of them are diluted. An
    interrupted recording goes on with the first part that is missing; what is recorded depends on
    the seed and the policies alone.
    """
    if episodes < 1:
        raise ValueError(f"episodes is {episodes}; expected an integer of at least 1")
    target, players = prepare(
        task, folder, policies=policies, algorithms=algorithms, trained=trained, form=form
    )
    parts = target.with_name(f".{target.name}.parts-{seed}-{episodes}-{digest(players)}")
    parts.mkdir(parents=True, exist_ok=True)
    total = -(-episodes // PART)
    for number in range(total):
        path = parts / f"{number}.npz"
        if progress is not None:
            progress(number, total)
        if not path.exists():
            played = range(number * PART, min((number + 1) * PART, episodes))
            part = record(task.environment, players, played, seed)
            with replacing(path) as beside, open(beside, "wb") as file:
                np.savez(file, **part._asdict())
    recorded = _join([parts / f"{number}.npz" for number in range(total)])
    data = recorded.trajectories(str(target))
    if form == "d4rl":
        write_d4rl(target, data)
    else:
        write_minari(target, recorded, task.environment)
    if progress is not None:
        progress(total, total)
    shutil.rmtree(parts)
    mean = float(np.mean(data.returns))
    return Collection(target, len(data), data.steps, mean, data.best_decile())


def prepare(
    task: RLTask,
    folder: Path | str,
    *,
    policies: Path | str | None = None,
    algorithms: Sequence[str] | None = None,
    trained: Policy | None = None,
    form: str = "minari",
) -> tuple[Path, list[Policy]]:
    """Where `collect` will write and who will play. All that can be wrong is found out here; before
    a policy is trained, TO_BE_TRAINED stands for it."""
    check_choice("form", form, FORMATS)
    if form == "d4rl":
        target = Path(folder) / "d4rl" / f"{task.stem}.hdf5"
    else:
        target = Path(folder) / "minari" / COLLECTED / task.environment.name / f"{task.level}-v0"
    if target.exists():
        raise DataError(f"{target} exists already; expected a data set that is not there yet")
    players = cast_policies(task, policies, algorithms, trained)
    make_environment(task.environment).close()
    need("minari" if form == "minari" else "h5py", "recorded episodes")
    return target, players


def cast_policies(
    task: RLTask,
    folder: Path | str | None,
    algorithms: Sequence[str] | None = None,
    trained: Policy | None = None,
) -> list[Policy]:
    """The policies that take turns in the episodes of a task."""
    if algorithms is not None:
        if not algorithms:
            raise ValueError("algorithms is empty; expected names such as 'sac'")
        if trained is not None and "sac" not in algorithms:
            raise ValueError(
                f"algorithms is {','.join(algorithms)}; expected 'sac' among them, whose policy is "
                "trained first"
            )
        players = [
            trained if trained is not None and name == "sac" else _policy_file(task, folder, [name])
            for name in algorithms
        ]
    else:
        check_choice("level", task.level, LEVELS)
        name = task.environment.name
        found: dict[str, Policy] = dict(PENDULUM) if name == "invertedpendulum" else {}
        if trained is not None:
            found["medium"] = trained
        elif folder is not None or not found:
            found["medium"] = _policy_file(task, folder, MEDIUM.get(name, ("sac",)))
        if task.level == "medium-expert" and "expert" not in found:
            found["expert"] = _policy_file(task, folder, EXPERT[name])
        players = [found[part] for part in ("medium", "expert") if part in task.level]
    return [Diluted(p) for p in players] if task.level == "medium-replay" else players


def _policy_file(task: RLTask, folder: Path | str | None, algorithms: Sequence[str]) -> Policy:
    kind = task.environment.id.partition("-")[0]  # policies outlive the versions of environments
    patterns = [f"{algorithm}-{kind}*.npz" for algorithm in algorithms]
    for pattern in patterns if folder is not None else ():
        if found := sorted(Path(str(folder)).glob(pattern)):
            return load_policy(found[-1])
    where = "a folder of policies" if folder is None else str(folder)
    raise DataError(f"no policy for {task.name}; expected {' or '.join(patterns)} in {where}")


def record(
    environment: Environment, policies: Sequence[Policy], episodes: Sequence[int], seed: int
) -> Recording:
    """Play the episodes with these numbers; each depends on (seed, number) alone. The numbers
    decide which of the policies plays."""
    rows: list[tuple[Any, ...]] = []
    lasts: list[Any] = []
    with closing(make_environment(environment)) as env:
        for number in episodes:
            rng = np.random.default_rng([seed, number])
            policy = for_episode(policies[number % len(policies)], rng)
            state, _ = env.reset(seed=int(rng.integers(2**31)))
            over = False
            while not over:
                action = np.asarray(policy.act(state, rng) * env.action_space.high, np.float32)
                after, reward, ended, cut, _ = env.step(action)
                rows.append((state, action, reward, ended, cut and not ended))
                state, over = after, ended or cut
            lasts.append(state)
    columns = list(zip(*rows, strict=True))
    states, actions, rewards = (np.array(column, np.float32) for column in columns[:3])
    ended, cut = (np.array(column, np.bool_) for column in columns[3:])
    return Recording(states, actions, rewards, ended, cut, np.array(lasts, np.float32))


def write_minari(folder: Path, recorded: Recording, environment: Environment) -> None:
    """A Minari data set <root>/<namespace>/<environment>/<name>-v<n>; whole or not there."""
    minari = need("minari", "Minari data sets")
    folder = folder.absolute()  # Minari joins a relative MINARI_DATASETS_PATH to itself
    root = folder.parents[2]
    name = "/".join(folder.parts[-3:])
    data = recorded.trajectories(name)
    lasts = recorded.last_observations
    buffers = [_buffer(data, episode, lasts[episode]) for episode in range(len(data))]
    beside = root / f".tmp-minari-{os.getpid()}"
    before = os.environ.get("MINARI_DATASETS_PATH")
    os.environ["MINARI_DATASETS_PATH"] = str(beside)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it asks for an author and a link to code
            minari.create_dataset_from_buffers(
                name, buffers, env=environment.id, algorithm_name="mixture",
                ref_min_score=environment.random, ref_max_score=environment.expert,
                data_format="hdf5",
            )  # fmt: skip
        folder.parent.mkdir(parents=True, exist_ok=True)
        os.replace(beside / name, folder)
    finally:
        if before is None:
            del os.environ["MINARI_DATASETS_PATH"]
        else:
            os.environ["MINARI_DATASETS_PATH"] = before
        shutil.rmtree(beside, ignore_errors=True)


def _buffer(data: Trajectories, episode: int, last: Floats) -> Any:
    span = slice(data.starts[episode], data.starts[episode] + data.lengths[episode])
    states = data.observations[span]
    from_module = need("minari.data_collector.episode_buffer", "Minari data sets")
    return from_module.EpisodeBuffer(
        id=episode,
        observations=np.concatenate([states, last[None]]).astype(np.float64),
        actions=data.actions[span],
        rewards=data.rewards[span].tolist(),
        terminations=data.terminals[span].tolist(),
        truncations=data.timeouts[span].tolist(),
    )


def _join(paths: Sequence[Path]) -> Recording:
    parts = []
    for path in paths:
        with np.load(path, allow_pickle=False) as file:
            parts.append([file[field] for field in Recording._fields])
    return Recording(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
