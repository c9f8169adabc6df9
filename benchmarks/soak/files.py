"""Damaged files of every kind that the package reads: one sentence that names the file, or a result
in the usual form; nothing is written, memory and time are bounded."""

from __future__ import annotations

import os
import resource
import signal
import traceback
import warnings
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random

from . import kinds
from .campaign import Budget, Tally, chance
from .mutations import mutate

MEMORY = 2**30  # bytes that a reader may take beyond what the process has
SECONDS = 10.0  # of CPU time that a reader may take
TOGETHER = 100  # cases of one process


def run(budget: Budget, tally: Tally, folder: Path) -> None:
    for name, kind in kinds.KINDS.items():
        kinds.copies(kind, folder / name)
        kind.read(folder / name)  # the right file is read
    whole = {
        (name, f): (folder / name / f).read_bytes()
        for name, kind in kinds.KINDS.items()
        for f in kind.files
    }
    numbers = iter(budget)
    pending = list(islice(numbers, TOGETHER))
    while pending:
        done = 0
        for number, answer in _in_a_process(pending, folder):
            done += 1
            _note(tally, number, answer)
        if done < len(pending):
            name, path = _chosen(chance("files", pending[done]))
            _note(tally, pending[done], f"broken: {name}, {path}: the reader's process died")
            (folder / name / path).write_bytes(whole[name, path])
            done += 1
        pending = pending[done:]
        pending += islice(numbers, TOGETHER - len(pending))


def _note(tally: Tally, number: int, answer: str) -> None:
    tally.cases += 1
    how, _, what = answer.partition(": ")
    if how == "broken":
        tally.fail(number, what)
    else:
        tally.counts[how] += 1


def _in_a_process(numbers: list[int], folder: Path) -> Iterator[tuple[int, str]]:
    """Answers of a forked process with little memory, as long as it lives."""
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        os.close(reading)
        try:
            _limit()
            with os.fdopen(writing, "w", buffering=1) as answers:
                for number in numbers:
                    answers.write(f"{number} {_case(number, folder)}\n")
        except BaseException:
            traceback.print_exc()  # a mistake of the campaign itself
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answers:
        for line in answers:
            number, _, answer = line.rstrip("\n").partition(" ")
            yield int(number), answer
    os.waitpid(pid, 0)


def _limit() -> None:
    warnings.simplefilter("ignore")
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    signal.signal(signal.SIGVTALRM, _too_long)


def _too_long(number: int, frame: object) -> None:
    raise TimeoutError(f"no answer after {SECONDS:g} s")


def _case(number: int, folder: Path) -> str:
    rng = chance("files", number)
    name, file = _chosen(rng)
    kind, place = kinds.KINDS[name], folder / name
    path = place / file
    whole = path.read_bytes()
    path.write_bytes(mutate(rng, whole, path.name))
    before = _contents(place)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        kind.read(place)
        answer = "read"
    except ValueError as error:
        told = str(error)
        clear = type(error).__module__.startswith("primal_attention") or type(error) is ValueError
        named = str(place) in told or path.name in told
        if clear and named and len(told.splitlines()) == 1:
            answer = "refused in a sentence"
        else:
            answer = f"broken: {name}, {path.name}: {type(error).__name__}: {told!r}"
    except BaseException as error:
        answer = f"broken: {name}, {path.name}: {type(error).__name__}: {str(error)!r}"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
    after = _contents(place)
    if after != before:
        changed = {p for p in before | after if before.get(p) != after.get(p)}
        answer = f"broken: {name}, {path.name}: wrote {sorted(changed)}"
    path.write_bytes(whole)
    return answer


def _chosen(rng: Random) -> tuple[str, str]:
    """A kind and the file of it that is damaged."""
    name = rng.choice(sorted(kinds.KINDS))
    return name, rng.choice(kinds.KINDS[name].files)


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
