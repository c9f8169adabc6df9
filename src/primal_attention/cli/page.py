"""The command as a page: `python -m primal_attention.cli.page > docs/commands.md`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from .app import app

INTRODUCTION = """\
# Commands

<!-- Written by `python -m primal_attention.cli.page` from the command itself; do not edit. -->

`primal` comes with the extra `train`. Every command answers `--help` at once. Results go to stdout,
progress and errors to stderr; with `--json` stdout is one JSON document. Exit codes: 0 done, 1
failed, 2 wrong usage, 130 interrupted. An error is one sentence; with `PRIMAL_DEBUG=1` in the
environment its traceback comes with it.

Data sets are looked for in the folder `--data-dir`, or in that of the variable
`PRIMAL_ATTENTION_DATA`.
"""

# command: what its help has no room for, and lines that show it
ABOUT: dict[str, tuple[str, tuple[str, ...]]] = {
    "train": (
        "Settings come from the defaults, then the recipe, then the options given. More under "
        "[Training](training.md).",
        (
            "primal train uea/JapaneseVowels --attention primal --rank 40 --eta 0.5",
            "primal train uea/JapaneseVowels --attention softmax,primal --seeds 0-4",
            "primal train uea/JapaneseVowels --recipe paper --protocol paper",
            "primal train lra/text --attention performer --option performer.features=128",
        ),
    ),
    "resume": (
        "On a CPU the result is that of an uninterrupted run to the last bit. A finished run "
        "prints its result again.",
        ("primal resume runs/japanese-vowels",),
    ),
    "list": (
        "What can stand for `--attention`, `TASK` and `--recipe`.",
        ("primal list", "primal list --json"),
    ),
    "bench": (
        "Settings and machine are stored with the figures; with `--out` the same command goes on "
        "with an interrupted measurement.",
        (
            "primal bench --attention softmax,primal:tied,linear --length 512:8192:x2",
            "primal bench --attention softmax,primal --pass forward --out bench/inference",
        ),
    ),
    "convert": (
        "Without `--out` the plan is printed and nothing is written. More under "
        "[Converting a model](convert.md).",
        (
            "primal convert models/bert --rank 32",
            "primal convert models/bert --distill 200 --batches texts.npz --out converted",
        ),
    ),
    "cost": (
        "From formulas, at once for any length. More under "
        "[Analysis](analysis.md#what-an-attention-costs).",
        ("primal cost --d 512 --heads 8 --rank 32 --length 1k:10M",),
    ),
    "learn": (
        "A small network of two layers, on sequences that are drawn as they are needed; what was "
        "found is under [Kinds of primal layers](results/kinds.md).",
        (
            "primal learn --length 2048 --seconds 120 --seeds 0-2 --out learn.jsonl",
            "primal learn counting --attention softmax,none --curriculum",
        ),
    ),
    "spectrum": (
        "Writes `spectrum.json` and pictures beside the weights. More under "
        "[Analysis](analysis.md).",
        (
            "primal spectrum runs/japanese-vowels --inputs 32",
            "primal spectrum models/bert --text lines.txt --out spectra",
        ),
    ),
    "report": (
        "What the page shows, and when: [Report](report.md).",
        ("primal report runs/softmax runs/primal bench/first --out report.html",),
    ),
    "reproduce": (
        "Continues where it stopped and does nothing twice. More under "
        "[Reproducing the paper](reproduce.md).",
        (
            "primal reproduce table1/JapaneseVowels --seeds 0-2 --budget 30m",
            "primal reproduce table3 --quick",
        ),
    ),
    "sweep": (
        "Several processes, started together or one by one, may share a folder. More under "
        "[Sweeps](reproduce.md#sweeps).",
        (
            "primal sweep uea/JapaneseVowels rank=20,30,40 eta=0,0.1,0.2,0.5 --workers 2",
            "primal sweep uea/JapaneseVowels rank=10:60 lr=1e-4:1e-2:log --search 30",
        ),
    ),
    "data": (
        "Without a further word: a table of all sets, where they lie and how to get the others.",
        ("primal data", "primal data --data-dir data --json"),
    ),
    "data get": (
        "Files that are there and right stay as they are.",
        ("primal data get cifar10 --data-dir data",),
    ),
    "data collect": (
        "For the tasks `rl/...`; needs the extra `rl`.",
        ("primal data collect invertedpendulum-medium --data-dir data",),
    ),
    "data generate": ("The two sets of the Long-Range Arena that are made by a program.", ()),
    "data generate listops": (
        "The same seed gives the same cases.",
        ("primal data generate listops --data-dir data --train 1000",),
    ),
    "data generate pathfinder": (
        "The same seed gives the same pictures.",
        ("primal data generate pathfinder --data-dir data",),
    ),
}


def page() -> str:
    """Every command in Markdown."""
    return "\n".join([INTRODUCTION, *(_section(name, one) for name, one in commands())])


def commands() -> Iterator[tuple[str, Any]]:
    """All commands with their names, those of groups after the group."""

    def below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
        for word, one in getattr(command, "commands", {}).items():
            yield f"{name} {word}".strip(), one
            yield from below(f"{name} {word}".strip(), one)

    return below("", get_command(app))


def _section(name: str, command: Any) -> str:
    text, examples = ABOUT.get(name, ("", ()))
    parts = [f"## primal {name}", command.help]
    if text:
        parts.append(text)
    if examples:
        parts.append("".join(f"    {line}\n" for line in examples).rstrip())
    context = command.context_class(command, info_name=name)
    panels: dict[str, list[Any]] = {}
    for parameter in command.params:
        if not getattr(parameter, "hidden", False):
            panels.setdefault(getattr(parameter, "rich_help_panel", None) or "", []).append(
                parameter
            )
    for panel, parameters in panels.items():
        if panel:
            parts.append(f"**{panel}**")
        parts.append(_table(parameters, context).rstrip())
    return "\n\n".join(parts) + "\n"


def _table(parameters: list[Any], context: Any) -> str:
    rows = [["argument or option", "default", "meaning"], ["---"] * 3]
    for parameter in parameters:
        name, text = parameter.get_help_record(context)
        found = re.fullmatch(r"(.*?)(?:  \[(.*)\])?", text, flags=re.DOTALL)
        about, extra = (found[1], found[2] or "") if found else (text, "")
        default = re.sub(r"^default: (?:\((.*?)\))?", r"\1", extra)
        default = re.sub(r"x>=(\d+)", r"at least \1", default)
        rows.append([f"`{name.replace(' range>', '>')}`", default, about])
    return "".join(
        "| " + " | ".join(cell.replace("|", " or ") for cell in r) + " |\n" for r in rows
    )


if __name__ == "__main__":
    print(page(), end="")
