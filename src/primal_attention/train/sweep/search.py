"""A search instead of a grid: Optuna proposes points, the store remembers them.

Points are proposed when there are places for their runs, whether earlier ones have ended or not:
the sampler knows the open points too, and keeps away from them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from ...runs.errors import RunError
from ...runs.extras import needs_extra
from ...runs.files import explained, read_object, write_json
from ...runs.folder import locked
from ..config import EngineConfig
from .runner import More
from .space import Range, Space, trials
from .store import Outcome, Store, key_of
from .trial import COMPARED

FILE = "search.json"
ASKS = 20  # proposals for a point, of which some are known already
Engine = Callable[[Sequence[EngineConfig], More], None]  # does runs, wherever, and then more


def search(
    base: EngineConfig,
    space: Space,
    seeds: Sequence[int],
    store: Store,
    engine: Engine,
    *,
    count: int,
) -> list[EngineConfig]:
    """Do the runs of `count` points; returns the runs.

    A point is worth its mean accuracy over seeds on the set that chooses the epochs (of a run that
    was stopped, its best so far). The points are in search.json, so a search that was interrupted
    goes on, and a larger count makes it longer. It ends earlier where no new points are found.
    """
    with needs_extra("search", "a search needs"):
        optuna = import_module("optuna")
    if count < 1:
        raise ValueError(f"the number of points to search is {count}; expected at least 1")
    distributions = {name: _distribution(optuna, values) for name, values in space.items()}
    with locked(store.root):
        points = _read(base, store, space)[:count]

        def more(places: int) -> list[EngineConfig]:
            wanted = min(math.ceil(places / len(seeds)), count - len(points))
            study = _study(optuna, distributions, base, points, seeds, store)
            new: list[dict[str, Any]] = []
            for _ in range(ASKS * wanted):
                if len(new) == wanted:
                    break
                proposed = study.ask(distributions).params
                point = {name: proposed[name] for name in space}
                if point not in [*points, *new] and _is_valid(base, point, seeds):
                    new.append(point)
            if new:  # otherwise the space is small
                points.extend(new)
                with explained(f"write into {store.root}"):
                    write_json(store.root / FILE, {**_describe(base, space), "points": points})
            return trials(base, new, seeds)

        engine(trials(base, points, seeds), more)
    return trials(base, points, seeds)


def _is_valid(base: EngineConfig, point: Mapping[str, Any], seeds: Sequence[int]) -> bool:
    """Whether the settings fit together: heads divide the width, and such."""
    try:
        trials(base, [point], seeds)
    except ValueError:
        return False
    return True


def _study(
    optuna: Any,
    distributions: Mapping[str, Any],
    base: EngineConfig,
    points: Sequence[Mapping[str, Any]],
    seeds: Sequence[int],
    store: Store,
) -> Any:
    """A study that knows what the points are worth, and which are at work; it draws other numbers
    with every point."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=len(points), constant_liar=True)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    outcomes = store.outcomes()
    for point in points:
        found = [outcomes.get(key_of(c)) for c in trials(base, [point], seeds)]
        values = [worth for one in found if (worth := _worth(one)) is not None]
        if not values and all(one is not None and one.status != "paused" for one in found):
            continue  # all of its runs failed
        state = optuna.trial.TrialState
        trial = optuna.trial.create_trial(
            state=state.COMPLETE if values else state.RUNNING,
            params=dict(point),
            distributions=dict(distributions),
            value=statistics.fmean(values) if values else None,
        )
        study.add_trial(trial)
    return study


def _worth(outcome: Outcome | None) -> float | None:
    if outcome is None or outcome.status == "failed":
        return None
    return outcome.selected if outcome.status == "finished" else max(outcome.curve, default=None)


def _distribution(optuna: Any, values: tuple[Any, ...] | Range) -> Any:
    kinds = optuna.distributions
    if not isinstance(values, Range):
        return kinds.CategoricalDistribution(values)
    if isinstance(values.low, int) and isinstance(values.high, int):
        return kinds.IntDistribution(values.low, values.high, log=values.log)
    return kinds.FloatDistribution(values.low, values.high, log=values.log)


def _describe(base: EngineConfig, space: Space) -> dict[str, Any]:
    """What a search is in, as JSON has it: the space, and the settings that all points share."""
    described = {
        name: [v.low, v.high, v.log] if isinstance(v, Range) else list(v)
        for name, v in space.items()
    }
    shared = {name: value for name, value in base.to_dict().items() if name in COMPARED}
    return {"space": described, "settings": shared}


def _read(base: EngineConfig, store: Store, space: Space) -> list[dict[str, Any]]:
    """The points of an earlier search, in the same space."""
    path = store.root / FILE
    if not path.exists():
        return []
    found = read_object(path)
    described = _describe(base, space)
    if {name: found.get(name) for name in described} != described:
        raise RunError(f"{path} is a search in another space; expected the same, or another folder")
    points = found.get("points")
    if not isinstance(points, list):
        raise RunError(f"{path} has no list of points; expected a search of this package")
    return points
