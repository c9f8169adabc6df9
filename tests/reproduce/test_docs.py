"""The examples of docs/reproduce.md run as written, and its commands exist."""

import re
import shlex
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "reproduce.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
COMMANDS = re.findall(r"^    (?:srun )?primal (.*)$", PAGE, flags=re.MULTILINE)


@pytest.mark.parametrize(("number", "expected"), [(0, "98.4 reproduced\n"), (1, "12\n")])
def test_example_runs(number, expected, capsys):
    exec(compile(EXAMPLES[number], f"example {number + 1}", "exec"), {})
    assert capsys.readouterr().out == expected


def test_commands_are_understood():
    from typer import Typer
    from typer.main import get_command

    from primal_attention.cli.reproduce import reproduce
    from primal_attention.cli.sweep import sweep

    app = Typer()
    app.command()(reproduce)
    app.command()(sweep)
    command = get_command(app)
    assert len(COMMANDS) >= 7
    for words in map(shlex.split, COMMANDS):
        own = command.commands[words[0]]
        own.make_context(words[0], words[1:])  # parses, and runs nothing
