"""The command `primal`: parses, calls one function, prints. Nothing here imports torch."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence

from ..runs.extras import MissingExtra, needs_extra

FAILED, WRONG_USAGE, INTERRUPTED = 1, 2, 130

# what an option was called before, by command; written commands go on working
FORMER = {
    "train": {"--accelerator": "--device"},
    "bench": {"--length": "--lengths", "--batch": "--batch-size", "--budget": "--cell-budget"},
    "cost": {"--length": "--lengths", "--batch": "--batch-size", "--d": "--width"},
    "data": {"--folder": "--out"},
}


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point. Exits with 0 (done), 1 (failed), 2 (wrong usage) or 130 (interrupted)."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; an error is one sentence on stderr."""
    try:
        with needs_extra("train", "the command needs"):
            from typer import TyperException

            from .app import app
    except MissingExtra as missing:
        return _say(str(missing), FAILED)
    try:
        code = app(_spelled_now(arguments), prog_name="primal", standalone_mode=False)
        sys.stdout.flush()
        return int(code or 0)
    except TyperException as wrong:
        context = getattr(wrong, "ctx", None)
        hint = f" (try '{context.command_path} --help')" if context else ""
        message = wrong.format_message().rstrip(".")
        # without a message the help has just been printed
        return _say(f"{message}{hint}", wrong.exit_code) if message else wrong.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # the reader of a pipe left, as in `primal list | head`; nothing may be flushed at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:
        if os.environ.get("PRIMAL_DEBUG"):
            traceback.print_exc()
        return _say(_sentence(error), FAILED)


def _spelled_now(arguments: Sequence[str]) -> list[str]:
    """The arguments, with former names of options replaced."""
    former = FORMER.get(arguments[0], {}) if arguments else {}
    words = (word.partition("=") for word in arguments)
    return [f"{former.get(name, name)}{equals}{value}" for name, equals, value in words]


def _say(sentence: str, code: int) -> int:
    print(f"primal: {sentence}", file=sys.stderr)
    return code


def _sentence(error: Exception) -> str:
    """What went wrong, in one line; errors that we did not write carry the name of their type."""
    if isinstance(error, OSError) and error.strerror:
        place = f": {error.filename}" if error.filename else ""
        return f"{error.strerror}{place}"
    text = " ".join(str(error).split())
    if isinstance(error, ValueError | ImportError) and text:
        return text
    name = type(error).__name__
    return f"{name}: {text or 'no message'} (PRIMAL_DEBUG=1 shows where)"
