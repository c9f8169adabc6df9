"""Peak memory of a step, each measured in a process of its own.

A server process imports torch once and never computes; every measurement is a fork of it, which
takes milliseconds. The fork may fill the free memory and no more, and it is ended after a time, so
that a step that is too large or too slow harms nobody.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple, Self

import torch

from .measure import STATUS, free_megabytes, peak_above_start, status_kilobytes, timed
from .results import Status

# what is imported there must be what is imported here, wherever that comes from
SERVE = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from primal_attention.bench.memory import serve
serve(sys.argv[2:])
"""


class Peak(NamedTuple):
    """What one call of a step took: megabytes above the start, and seconds."""

    megabytes: float
    seconds: float


class NotMeasured(Exception):
    """Why a step has no figures, in one line: it asked for more "memory" than there is, took more
    "time" than it may, or ended with an "error"."""

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class MemoryMeter:
    """Measures steps; the server starts with the first one and ends with the `with`. It preloads
    modules that steps would import, each in its own process."""

    def __init__(self, *preload: str) -> None:
        self._preload = preload
        self._server: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._end()

    def peak(self, maker: str, *arguments: Any, seconds: float, device: str = "cpu") -> Peak:
        """Call the step that `maker`, "module:function", makes of plain arguments, which may
        take that many seconds."""
        job = {"maker": maker, "arguments": arguments, "seconds": seconds, "device": device}
        answer = self._ask(job)
        if "peak" in answer:
            return Peak(*answer["peak"])
        ended = answer.get("signal")
        if ended == signal.SIGALRM:
            raise NotMeasured("time", f"one step takes more than {seconds:.3g} s")
        if answer.get("memory") or ended == signal.SIGKILL:
            free = f"{free_megabytes(device):,.0f} MB"
            raise NotMeasured("memory", f"one step needs more than the free {free}")
        raise NotMeasured("error", answer.get("error") or f"the process ended with signal {ended}")

    def _ask(self, job: dict[str, Any]) -> dict[str, Any]:
        if self._server is None:
            self._server = subprocess.Popen(
                [sys.executable, "-c", SERVE, json.dumps(sys.path), *self._preload],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                process_group=0,  # Ctrl-C ends it through __exit__
            )
        server = self._server
        if server.stdin is None or server.stdout is None:
            raise NotMeasured("error", "the process that measures memory has no pipes")
        try:
            server.stdin.write(json.dumps(job) + "\n")
            server.stdin.flush()
            line = server.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self._end()  # the next measurement starts another
            ended = f"ended with {server.returncode}"
            raise NotMeasured("error", f"the process that measures memory {ended}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _end(self) -> None:
        if self._server is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._server.pid, signal.SIGKILL)  # a fork may be at work
            with suppress(BrokenPipeError):
                self._server.communicate()
            self._server = None


# -- the server ----------------------------------------------------------------------------------


def serve(preload: Sequence[str]) -> None:
    """Answer jobs, one JSON line each, until stdin ends."""
    for module in preload:
        import_module(module)
    with suppress(BrokenPipeError):  # whoever asked was killed
        for line in sys.stdin:
            print(json.dumps(_fork(json.loads(line))), flush=True)


def _fork(job: dict[str, Any]) -> dict[str, Any]:
    """The answer to a job, from a child."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.dup2(2, 1)  # what a step prints is no answer
        answer = _measure(job)
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        answered = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return {"signal": os.WTERMSIG(status)}
    found: dict[str, Any] = json.loads(answered)
    return found


def _measure(job: dict[str, Any]) -> dict[str, Any]:
    try:
        if job["device"] == "cpu":  # drivers of accelerators reserve any amount of addresses
            _limit_memory()
        module, _, function = job["maker"].partition(":")
        step = getattr(import_module(module), function)(*job["arguments"])
        signal.setitimer(signal.ITIMER_REAL, job["seconds"])  # the default action ends the process
        seconds: list[float] = []
        megabytes = peak_above_start(lambda: seconds.append(timed(step)))
        return {"peak": [megabytes, seconds[0]]}
    except BaseException as error:
        # torch has no class of its own for an allocation that fails on a CPU
        full = isinstance(error, MemoryError | torch.OutOfMemoryError)
        memory = full or "can't allocate memory" in str(error)
        return {"memory": memory, "error": one_line(error)}


def _limit_memory() -> None:
    """Let an allocation beyond the free memory fail; without a limit Linux would grant it, and end
    some process when it is used."""
    free = free_megabytes()
    if STATUS.exists() and free != float("inf"):
        import resource

        most = status_kilobytes("VmSize") * 1024 + int(free * 2**20)
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))


def one_line(error: BaseException, longest: int = 200) -> str:
    """An error as a line of a table."""
    text = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
