"""The build hook: compiles the CPU kernels into the wheel, or beside the sources where a project is
installed for editing. Where nothing can be compiled the package is pure Python: never an error.

`PRIMAL_WHEEL` names what `make wheels` builds: `pure`, or one of `TARGETS`.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

VARIABLE = "PRIMAL_WHEEL"
NATIVE = Path("src/primal_attention/kernels/native")


class Target(NamedTuple):
    """A system to compile for: the triple for the compiler of `ziglang`, and the wheel's tag."""

    triple: str
    machine: str
    system: str
    tag: str


TARGETS = {
    "linux-x86_64": Target("x86_64-linux-gnu.2.28", "x86_64", "linux", "manylinux_2_28_x86_64"),
    "linux-aarch64": Target("aarch64-linux-gnu.2.28", "aarch64", "linux", "manylinux_2_28_aarch64"),
    "macos-arm64": Target("aarch64-macos.13.0", "arm64", "darwin", "macosx_13_0_arm64"),
    "macos-x86_64": Target("x86_64-macos.13.0", "x86_64", "darwin", "macosx_13_0_x86_64"),
    "windows-x86_64": Target("x86_64-windows-gnu", "amd64", "win32", "win_amd64"),
}


class KernelsHook(BuildHookInterface):  # type: ignore[type-arg]
    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """`ziglang` brings a compiler where there is none; it exists for the usual systems."""
        chosen = os.environ.get(VARIABLE)
        if chosen == "pure" or self.target_name != "wheel":
            return []
        usual = sysconfig.get_platform().startswith(
            ("linux-x86_64", "linux-aarch64", "macosx", "win-amd64")
        )
        return ["ziglang"] if chosen or (usual and not _builder(self.root).has_compiler()) else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        chosen = os.environ.get(VARIABLE)
        if chosen == "pure" or self.target_name != "wheel":
            return
        if chosen and chosen not in TARGETS:
            raise ValueError(
                f"{VARIABLE} is {chosen!r}; expected pure or one of {', '.join(TARGETS)}"
            )
        builder, log = _builder(self.root), []
        folder = Path(self.root) / NATIVE
        if chosen:
            target = TARGETS[chosen]
            folder = Path(self.directory) / "kernels" / chosen
            folder.mkdir(parents=True, exist_ok=True)
            made = builder.build(
                folder, target=target.triple, machine=target.machine, system=target.system, log=log
            )
            if not made:
                raise RuntimeError("\n".join(log))
            tag = target.tag
        else:
            made = builder.build(folder, log=log)
            tag = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        if not made:
            self.app.display_warning("the CPU kernels were not compiled: " + "\n".join(log))
            return
        if version != "editable":
            inside = NATIVE.relative_to("src")
            build_data["force_include"].update({str(p): str(inside / p.name) for p in made})
            build_data["pure_python"], build_data["tag"] = False, f"py3-none-{tag}"


def _builder(root: str) -> ModuleType:
    """`build.py` of the kernels, which imports nothing of the package."""
    path = Path(root) / NATIVE / "build.py"
    spec = importlib.util.spec_from_file_location("primal_kernels_build", path)
    if spec is None or spec.loader is None:
        raise RuntimeError(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
