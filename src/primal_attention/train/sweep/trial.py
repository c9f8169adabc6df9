"""One run of many: claimed, trained or continued, and its outcome kept."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...runs.files import read_json
from ...runs.metrics import read_metrics
from ...tasks import get_task
from ...tasks.objective import RunResult
from .. import resume, train
from ..config import EngineConfig, config_of
from ..events import Observer
from ..run import read_result
from .stopping import Deadline, MedianRule, Several, StopHopeless, Stopper
from .store import DEATHS, Outcome, Status, Store, data_of, key_of


@dataclass(frozen=True, kw_only=True)
class Terms:
    """How runs are done: `rule` stops hopeless ones, `deadline` (of `time.time()`) ends the work,
    `whole` leaves what would not end by then."""

    rule: MedianRule | None = None
    deadline: float | None = None
    whole: bool = False

    @property
    def over(self) -> bool:
        return self.deadline is not None and time.time() >= self.deadline


# What two runs must share for one to be judged by the other.
COMPARED = ("task", "recipe", "protocol", "attention", "epochs", "epoch_steps")


def is_open(known: Outcome | None, terms: Terms) -> bool:
    """Whether a run with this outcome is still to be done; what failed waits for `reopen`, and what
    was stopped as hopeless for terms without that rule."""
    if known is None or known.status == "paused":
        return True
    return known.status == "stopped" and terms.rule is None


def reopen(configs: Sequence[EngineConfig], store: Store) -> None:
    """Let runs that failed be tried again."""
    known = store.outcomes()
    for config in configs:
        outcome = known.get(key_of(config))
        if outcome is not None and outcome.status == "failed":
            store.add(dataclasses.replace(outcome, status="paused"))


def run_trial(
    config: EngineConfig, store: Store, terms: Terms, *, observer: Observer | None = None
) -> Outcome | None:
    """Do a run, or continue it, and keep its outcome; what is done is not done again. None if
    another process is at work on it. An error becomes the outcome; Ctrl-C is passed on."""
    fingerprint = key_of(config)
    with store.claim(config) as deaths:
        if deaths is None:
            return None
        known = store.outcomes().get(fingerprint)
        if known is not None and not is_open(known, terms):
            return known
        if deaths >= DEATHS:
            reason = f"the process that ran it died {deaths} times"
            outcome = Outcome(fingerprint, "failed", config.to_dict(), reason=reason)
        else:
            outcome = _run(config, store, terms, observer)
        store.add(outcome)
    return outcome


def _run(config: EngineConfig, store: Store, terms: Terms, observer: Observer | None) -> Outcome:
    run = store.folder(config)
    stoppers = _stoppers(config, store, terms, run)
    audience = Several([*stoppers, *([observer] if observer else [])])
    try:
        result = _train(config, run, audience)
    except KeyboardInterrupt:
        asked = next((one for one in stoppers if one.reason is not None), None)
        if asked is None:  # the user
            raise
        status: Status = "paused" if isinstance(asked, Deadline) else "stopped"
        return _outcome(config, status, run, reason=asked.reason)
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        return _outcome(config, "failed", run, reason=reason)
    return finished(config, result)


def _train(config: EngineConfig, run: Path, observer: Observer) -> RunResult:
    """Train in a folder, or go on in it."""
    if run.exists():
        result = resume(run, observer=observer)
    else:
        result = train(config, root=run.parent, name=run.name, observer=observer)
    if not isinstance(result, RunResult):
        raise TypeError(f"{run} is a folder of seeds; expected one run")
    return result


def _stoppers(config: EngineConfig, store: Store, terms: Terms, run: Path) -> list[Stopper]:
    found: list[Stopper] = []
    if terms.rule is not None:
        fingerprint = key_of(config)

        def others() -> list[tuple[float, ...]]:
            """Curves that mean the same: of another protocol they would be test accuracies."""
            own, known = config.to_dict(), store.outcomes().items()
            data = data_of(config)
            return [
                one.curve
                for key, one in known
                if key != fingerprint
                and one.done
                and one.data == data
                and all(one.settings.get(name) == own.get(name) for name in COMPARED)
            ]

        found.append(StopHopeless(terms.rule, others, curve(config, run)))
    if terms.deadline is not None:
        found.append(Deadline(terms.deadline, whole=terms.whole))
    return found


def curve(config: EngineConfig, run: Path) -> tuple[float, ...]:
    """What every epoch of a run measured, as a share of the whole, and one that was not evaluated
    has from the epoch before it; empty where there is none."""
    measure, found = get_task(config.task).objective.result_class.measure, list[float]()
    with suppress(OSError, ValueError):
        for line in read_metrics(run):
            if line["kind"] == "epoch":
                known = measure.key in line
                found.append(measure.share(line[measure.key]) if known else found[-1])
        return tuple(found)
    return ()


def finished(config: EngineConfig, result: RunResult) -> Outcome:
    """The outcome of a run that has a result."""
    return _outcome(
        config, "finished", result.run,
        label=result.meaning, accuracy=result.share, selected=result.selected, cases=result.cases,
        seconds=result.seconds,
    )  # fmt: skip


def _outcome(config: EngineConfig, status: Status, run: Path, **found: Any) -> Outcome:
    found |= {"run": str(run), "curve": curve(config, run), "data": data_of(config)}
    return Outcome(key_of(config), status, config.to_dict(), **found)


def adopt(store: Store, folder: Path | str) -> int:
    """Take over the finished runs below a folder that the store does not know, wherever they were
    made; returns how many. Runs without a test set are left out, and those whose task does not say
    which data it is: what lies in their data folder now need not be what they learned from."""
    known, count = store.outcomes(), 0
    for path in sorted(Path(folder).rglob("result.json")):
        found = _read(path.parent)
        if found is None or (found.fingerprint in known and known[found.fingerprint].done):
            continue
        store.add(found)
        known[found.fingerprint] = found
        count += 1
    return count


def _read(run: Path) -> Outcome | None:
    with suppress(ValueError, TypeError, KeyError):  # of another program or version
        config = config_of(read_json(run / "config.json"))
        result = read_result(run)
        if result is not None and result.of_unseen and not get_task(config.task).any_data:
            return finished(config, result)
    return None
