"""Compile the kernels: `python -m primal_attention.kernels.native.build`.

One C++ file without dependencies becomes one shared library for each level of a processor. Any
compiler with vector extensions will do (GCC 9, Clang 12 or newer): that of `$CXX`, one on the path,
or the one inside the package `ziglang`. Imports nothing of the package, so that the build hook can
load this file by its path.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

HERE = Path(__file__).parent
SOURCE = HERE / "source"
FLAGS = (
    "-std=c++17", "-O3", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread",
    "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math",
)  # fmt: skip
# the levels of a processor, best first, and their flags
X86: dict[str, tuple[str, ...]] = {
    "v4": ("-march=x86-64-v4", "-mprefer-vector-width=512"),
    "v3": ("-march=x86-64-v3",),
}
ARM: dict[str, tuple[str, ...]] = {"neon": ()}
SYSTEMS = {"linux": ".so", "darwin": ".dylib", "win32": ".dll"}
SECONDS = 300  # that a compiler may take


def levels(machine: str) -> dict[str, tuple[str, ...]]:
    """The levels that exist for a kind of processor; none where the kernels do not run."""
    machine = machine.lower()
    if machine in ("x86_64", "amd64"):
        return X86
    return ARM if machine in ("aarch64", "arm64") else {}


def library_name(level: str, system: str = sys.platform) -> str:
    return f"libprimal-{level}{SYSTEMS.get(system, '.so')}"


def has_compiler() -> bool:
    """Whether there is one besides that of `ziglang`."""
    return next(_own_compilers(), None) is not None


def compilers() -> Iterator[list[str]]:
    """Commands that may compile C++, the preferred first."""
    yield from _own_compilers()
    if importlib.util.find_spec("ziglang") is not None:
        yield [sys.executable, "-m", "ziglang", "c++"]


def _own_compilers() -> Iterator[list[str]]:
    given = os.environ.get("CXX")
    if given:
        yield shlex.split(given)
    for name in ("c++", "g++", "clang++"):
        found = shutil.which(name)
        if found:
            yield [found]


def build(
    folder: Path = HERE,
    *,
    target: str | None = None,
    machine: str | None = None,
    system: str = sys.platform,
    log: list[str] | None = None,
) -> list[Path]:
    """Compile every level into a folder; returns the libraries, none where nothing could.

    target: a triple for the compiler of `ziglang`, to compile for another machine and system. What
    failed is added to `log`.
    """
    notes = [] if log is None else log
    if target is None:
        commands = list(compilers())
    else:
        commands = [[sys.executable, "-m", "ziglang", "c++", "-target", target]]
    if not commands:
        notes.append("no C++ compiler was found")
    made = []
    for level, flags in levels(machine or platform.machine()).items():
        to = folder / library_name(level, system)
        if any(
            _compile([*command, *FLAGS, *_fitting(command, flags)], to, notes)
            for command in commands
        ):
            made.append(to)
    return made


def _fitting(command: Sequence[str], flags: Sequence[str]) -> list[str]:
    """The flags for a level as a compiler spells them."""
    if "ziglang" not in command:
        return list(flags)
    return ["-s", *(flag.replace("-march=x86-64-v", "-mcpu=x86_64_v") for flag in flags)]


def _compile(command: list[str], to: Path, notes: list[str]) -> bool:
    """Written beside and renamed, so that a library in use is never half a file."""
    with tempfile.TemporaryDirectory(dir=to.parent) as scratch:
        made = Path(scratch) / to.name
        full = [*command, str(SOURCE / "primal.cpp"), "-o", str(made)]
        try:
            done = subprocess.run(full, capture_output=True, text=True, timeout=SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            notes.append(f"{shlex.join(command[:3])}: {error}")
            return False
        if done.returncode or not made.exists():
            notes.append(f"{shlex.join(full)}\n{done.stderr.strip()}")
            return False
        made.replace(to)
    return True


def main() -> int:
    log: list[str] = []
    made = build(log=log)
    for path in made:
        print(path)
    if not made:
        print("\n".join(log) or f"no kernels for {platform.machine()}", file=sys.stderr)
    return 0 if made else 1


if __name__ == "__main__":
    sys.exit(main())
