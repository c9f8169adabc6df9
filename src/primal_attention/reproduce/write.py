"""A filled table as text: CSV for programs, Markdown and LaTeX for pages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ..runs.files import write_texts
from ..runs.tables import to_csv, to_markdown
from .lines import NO_VERDICT, Line
from .paper_tables import PaperTable

TITLES = ("row", "column", "paper", "ours", "difference", "95 % interval", "seeds", "verdict")
LISTED = 12  # rows; more are counted
HOLDOUT = (
    "Our epochs were chosen on a validation split and the test set was used once. A figure that "
    "was selected on the test set is higher by that alone."
)
# what LaTeX reads otherwise
_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_", "$": r"\$",
    "±": r"$\pm$", "×": r"$\times$", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "{": r"\{", "}": r"\}",
}  # fmt: skip


def texts(line: Line) -> tuple[str, ...]:
    """A line as text, under TITLES."""
    ours = line.ours
    head = (line.row, line.column, line.printed)
    if ours is None:
        return (*head, "", "", "", "", line.state)
    deviation = "" if ours.deviation is None else f" ± {ours.deviation:.1f}"
    return (
        *head,
        f"{ours.mean:.1f}{deviation}",
        "" if line.difference is None else f"{line.difference:+.1f}",
        f"{ours.low:.1f} to {ours.high:.1f}",
        str(ours.seeds),
        line.state,
    )


def reasons(lines: Sequence[Line]) -> list[str]:
    """Why cells were not run, or have a figure but no verdict; a line for each reason."""
    found: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        if line.verdict == "not run":
            found.setdefault((line.state, line.why), []).append(line)
    return [f"{state}: {where(cells)}: {why}" for (state, why), cells in found.items()]


def counted(lines: Sequence[Line]) -> str:
    """ "2 reproduced, 1 better, 107 not run"."""
    names = ("reproduced", "better", "not reproduced", NO_VERDICT, "not run")
    counts = {name: sum(line.state == name for line in lines) for name in names}
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count)


def notes(found: PaperTable, lines: Sequence[Line], protocol: str = "paper") -> list[str]:
    """What a reader must know: about all figures, and about those among the lines."""
    kept = [HOLDOUT] if protocol == "holdout" else []
    for note in found.notes:
        if note.general or any(note.applies(line.row, line.column) for line in lines):
            names = [*note.rows, *note.columns]
            about = f"{', '.join(names)}: " if names and len(names) < 4 else ""
            kept.append(f"{about}{note.text}")
    if found.references:
        listed = "; ".join(
            f"{one.name} {one.average:.1f} ({one.source})" for one in found.references
        )
        kept.append(f"Outside the paper, {found.references[0].protocol}: {listed}.")
    return kept


def as_csv(lines: Sequence[Line]) -> str:
    fields = ("row", "column", "printed", "paper", "ours", "deviation", "low", "high", "seeds")
    rows = []
    for line in lines:
        ours = line.ours
        own = [ours.mean, ours.deviation, ours.low, ours.high, ours.seeds] if ours else [None] * 5
        rounded = [round(x, 4) if isinstance(x, float) else x for x in [*own, line.difference]]
        end = [line.verdict, line.why, f"{line.seconds:.0f}", "; ".join(line.missing)]
        rows.append([line.row, line.column, line.printed, line.paper, *rounded, *end])
    return to_csv([*fields, "difference", "verdict", "why", "seconds", "missing"], rows)


def as_markdown(
    found: PaperTable, lines: Sequence[Line], command: str, protocol: str = "paper"
) -> str:
    out = [f"# {found.name}: {found.title}", "", f"Made by `{command}`: {counted(lines)}.", ""]
    shown = [line for line in lines if line.ours is not None]
    if shown:
        out += [to_markdown(TITLES, ([t.replace("|", "/") for t in texts(x)] for x in shown))]
        minutes = sum(line.seconds for line in shown if "average" not in (line.row, line.column))
        out += ["", f"Training took {minutes / 60:.1f} minutes.", ""]
    partial = [line for line in shown if line.missing]
    out += [f"- {x.row}, {x.column}: without {'; '.join(x.missing)}" for x in partial]
    if why := reasons(lines):
        out += ["", *(f"- {reason}" for reason in why)]
    out += ["", "Notes:", "", *(f"- {note}" for note in notes(found, lines, protocol))]
    return "\n".join(out) + "\n"


def as_latex(found: PaperTable, lines: Sequence[Line], protocol: str = "paper") -> str:
    rows = [" & ".join(map(_latex, TITLES)) + r" \\ \midrule"]
    rows += [" & ".join(map(_latex, texts(line))) + r" \\" for line in lines]
    remarks = " ".join(map(_latex, notes(found, lines, protocol)))
    return "\n".join(
        [
            r"% needs \usepackage{booktabs,longtable}",
            r"\begin{longtable}{llrrrrrl}",
            rf"\caption{{{_latex(found.title)}. {remarks}}} \\",
            r"\toprule",
            *rows,
            r"\bottomrule",
            r"\end{longtable}",
            "",
        ]
    )


def write_all(
    found: PaperTable,
    lines: Sequence[Line],
    folder: Path,
    command: str,
    *,
    protocol: str = "paper",
    part: str | None = None,
    quick: bool = False,
    published: bool = False,
) -> list[Path]:
    """Write a table as CSV, Markdown and LaTeX, in files named after what was asked for."""
    made = {
        "csv": as_csv(lines),
        "md": as_markdown(found, lines, command, protocol),
        "tex": as_latex(found, lines, protocol),
    }
    flags = {"holdout": protocol == "holdout", "quick": quick, "published": published}
    asked = [part, *(name for name, given in flags.items() if given)]
    name = "-".join([found.name, *(re.sub(r"[^\w.+=]+", "_", word) for word in asked if word)])
    return write_texts(folder, {f"{name}.{kind}": text for kind, text in made.items()})


def where(cells: Sequence[Line]) -> str:
    """The cells of a reason, shortened: "JapaneseVowels (Trans., Re.)" or "110 cells"."""
    rows = list(dict.fromkeys(cell.row for cell in cells))
    if len(rows) > LISTED:
        return f"{len(cells)} cells"
    found = []
    for row in rows:
        columns = [cell.column for cell in cells if cell.row == row]
        found.append(f"{row} ({', '.join(columns)})" if len(columns) <= 4 else row)
    return ", ".join(found)


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
