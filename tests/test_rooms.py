"""Every room imports only from rooms below it, also inside functions and for type checks."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "primal_attention"
# from the top; modules beside the rooms stand below those that use them
ORDER = (
    "__main__", "__init__", "aeon", "cli", "serve", "report", "reproduce", "bench", "train",
    "tasks", "models", "convert", "analysis", "adapters", "attention", "kernels", "theory", "runs",
    "distributed", "plugins", "grammar", "names", "version",
)  # fmt: skip
NAMES = frozenset(path.stem for path in PACKAGE.iterdir() if not path.name.startswith("__py"))


class Edge(NamedTuple):
    """An import of a file: from which room to which, and on which line."""

    file: str
    line: int
    room: str
    used: str


def target(node: ast.ImportFrom, file: Path) -> list[str]:
    """The parts of the package that `from ... import ...` names, by their rooms."""
    parts = (node.module or "").split(".")
    if node.level == 0:
        if parts[0] != PACKAGE.name:
            return []
        inside = parts[1:]
    else:
        folder = file.relative_to(PACKAGE).parts[: -node.level]
        inside = [*folder, *(parts if node.module else [])]
    if inside:
        return [inside[0]]
    return [alias.name if alias.name in NAMES else "__init__" for alias in node.names]


def edges() -> Iterator[Edge]:
    """All imports between rooms, wherever they stand in a file."""
    for file in sorted(PACKAGE.rglob("*.py")):
        room = file.relative_to(PACKAGE).with_suffix("").parts[0]
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom):
                for used in target(node, file):
                    if used != room:
                        yield Edge(str(file.relative_to(PACKAGE)), node.lineno, room, used)
            elif isinstance(node, ast.Import):
                names = [alias.name.split(".") for alias in node.names]
                for first, *inside in names:
                    if first == PACKAGE.name and inside[:1] != [room]:
                        used = inside[0] if inside else "__init__"
                        yield Edge(str(file.relative_to(PACKAGE)), node.lineno, room, used)


@pytest.fixture(scope="module")
def found():
    return list(edges())


def test_every_room_has_its_place():
    assert {"cli", "attention", "theory", "runs"} <= NAMES
    assert not NAMES - {*ORDER, "py"}, "a room that is not in the order"


def test_imports_are_found(found):
    """Also those inside functions: the engine is imported where a command runs."""
    pairs = {(edge.room, edge.used) for edge in found}
    assert {("cli", "train"), ("models", "attention"), ("attention", "kernels")} <= pairs


def test_every_room_imports_from_below(found):
    """With an order that all imports follow there is no cycle either."""
    upward = [
        f"{edge.file}:{edge.line} imports {edge.used}"
        for edge in found
        if edge.room != "__init__" and ORDER.index(edge.used) < ORDER.index(edge.room)
    ]
    assert not upward, "\n".join(upward)
