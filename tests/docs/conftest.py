"""For the tests of the documentation."""

import re
from pathlib import Path

import pytest


@pytest.fixture
def parse(tmp_path, monkeypatch):
    """`parse(words)` lets the command's own parser read a line; nothing runs. The files and folders
    that the line names need not exist: they are made, empty, in a folder of the test."""
    pytest.importorskip("typer")
    from typer import TyperException
    from typer.main import get_command

    from primal_attention.cli.app import app

    monkeypatch.chdir(tmp_path)
    root = get_command(app)

    def make(missing: str) -> bool:
        found = re.search(r"(\w+) '([^'/][^']*)' does not exist", missing)
        if found is None:
            return False
        path = Path(found[2])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch() if found[1].lower() == "file" else path.mkdir()
        return True

    def parse(words: list[str]) -> None:
        command, rest = root, list(words)
        while rest and rest[0] in getattr(command, "commands", {}):
            command = command.commands[rest.pop(0)]
        for _ in range(len(rest) + 1):
            try:
                command.make_context(words[0], list(rest))
                return
            except TyperException as wrong:
                if not make(wrong.format_message()):
                    raise

    return parse
