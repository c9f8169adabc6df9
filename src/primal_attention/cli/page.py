"""The command as a page: `python -m primal_attention.cli.page > docs/commands.md`. What the command
does not say of itself stands in page.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from typer.main import get_command

from ..runs.tables import to_markdown
from .app import app

PROSE = files(__package__).joinpath("page.md").read_text(encoding="utf-8")
# before the commands, and by command what its help has no room for, with lines that show it
INTRODUCTION, *_OWN = re.split(r"^## primal (.*)\n\n", PROSE, flags=re.MULTILINE)
ABOUT = {name: text.strip("\n") for name, text in zip(_OWN[::2], _OWN[1::2], strict=True)}


def page() -> str:
    """Every command in Markdown."""
    return INTRODUCTION + "\n".join(_section(name, one) for name, one in commands())


def commands() -> Iterator[tuple[str, Any]]:
    """All commands with their names, those of groups after the group."""

    def below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
        for word, one in getattr(command, "commands", {}).items():
            yield f"{name} {word}".strip(), one
            yield from below(f"{name} {word}".strip(), one)

    return below("", get_command(app))


def _section(name: str, command: Any) -> str:
    parts = [f"## primal {name}", command.help, ABOUT[name]]
    context = command.context_class(command, info_name=name)
    panels: dict[str, list[Any]] = {}
    for parameter in command.params:
        if not getattr(parameter, "hidden", False):
            panel = getattr(parameter, "rich_help_panel", None) or ""
            panels.setdefault(panel, []).append(parameter)
    for panel, parameters in panels.items():
        if panel:
            parts.append(f"**{panel}**")
        parts.append(_table(parameters, context))
    return "\n\n".join(parts) + "\n"


def _table(parameters: list[Any], context: Any) -> str:
    rows = []
    for parameter in parameters:
        name, text = parameter.get_help_record(context)
        found = re.fullmatch(r"(.*?)(?:  \[(.*)\])?", text, flags=re.DOTALL)
        about, extra = (found[1], found[2] or "") if found else (text, "")
        default = re.sub(r"^default: (?:\((.*?)\))?", r"\1", extra)
        default = re.sub(r"x>=(\d+)", r"at least \1", default)
        cells = f"`{name.replace(' range>', '>')}`", default, about
        rows.append([cell.replace("|", " or ") for cell in cells])
    return to_markdown(["argument or option", "default", "meaning"], rows)


if __name__ == "__main__":
    print(page(), end="")
