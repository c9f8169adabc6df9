"""The page of the commands."""

from functools import cache
from pathlib import Path

import pytest

from primal_attention.cli import page as module
from primal_attention.cli.page import ABOUT, commands

COMMITTED = Path(__file__).parents[2] / "docs" / "commands.md"


page = cache(module.page)


def section(name: str) -> str:
    return page().split(f"\n## primal {name}\n")[1].split("\n## ")[0]


def test_the_committed_page_is_the_command():
    command = "python -m primal_attention.cli.page > docs/commands.md"
    assert COMMITTED.read_text(encoding="utf-8") == page(), f"run `{command}`"


def test_every_command_is_introduced():
    assert [name for name, _ in commands()] == sorted(ABOUT, key=list(dict(commands())).index)


@pytest.mark.parametrize("name", ABOUT)
def test_everything_about_a_command_is_there(name):
    command, text = dict(commands())[name], section(name)
    examples = [line.strip() for line in ABOUT[name].splitlines() if line.startswith("    ")]
    assert command.help in text
    assert ABOUT[name] in text
    assert examples or getattr(command, "commands", None)
    assert all(line.startswith(f"primal {name}") for line in examples)
    for parameter in command.params:
        shown = parameter.opts if parameter.param_type_name == "option" else [parameter.metavar]
        for word in shown:
            assert word.replace("|", " or ") in text
        assert parameter.help.replace("|", " or ") in text


def test_defaults():
    assert "| `--recipe <str>` | default | Settings" in section("train")
    assert "| `--width <int>` | from recipe | Width" in section("train")
    assert "| `TASK <str>` | required |" in section("sweep")
    assert "| `--inputs <int>` | 32; at least 1 |" in section("spectrum")
