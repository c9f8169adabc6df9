"""Pieces of the page: text that is safe in HTML, figures with their data, sections."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from urllib.parse import quote

from ...runs.tables import to_csv
from ..charts import Cell, Chart, colour


@dataclass(frozen=True)
class Section:
    """A part of the page; `body` is HTML, `lead` what it says, in a sentence before it."""

    id: str
    title: str
    body: str
    lead: str = ""

    def html(self) -> str:
        lead = f'<p class="lead">{escape(self.lead)}</p>' if self.lead else ""
        return f'<section id="{self.id}"><h2>{escape(self.title)}</h2>{lead}{self.body}</section>'


def figure(name: str, title: str, chart: Chart, commands: Iterable[str], note: str = "") -> str:
    """A chart with its title, its views, its data as CSV and the commands that made it."""
    shown = next(iter(chart.views))
    plots = "".join(
        f'<div class="view" data-view="{escape(view)}"{"" if view == shown else " hidden"}>'
        f"{svg}</div>"
        for view, svg in chart.views.items()
    )
    buttons = ""
    if len(chart.views) > 1:
        buttons = "".join(
            f'<button type="button" data-show="{escape(view)}" '
            f'aria-pressed="{str(view == shown).lower()}">{escape(view)}</button>'
            for view in chart.views
        )
    hint = f"<p>{escape(note)}</p>" if note else ""
    return (
        f'<figure class="chart" id="{escape(slug(name))}">'
        f"<figcaption><h3>{escape(title)}</h3>{hint}</figcaption>"
        f'<div class="plot">{plots}</div>'
        f'<div class="tools">{buttons}{download(name, chart.columns, chart.rows)}'
        f"{made_by(commands)}</div></figure>"
    )


def download(name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """A link that holds a table as CSV."""
    data = quote(to_csv(columns, rows), safe=",.-:()+/")
    return (
        f'<a class="csv" download="{escape(slug(name))}.csv" '
        f'href="data:text/csv;charset=utf-8,{data}">CSV</a>'
    )


def made_by(commands: Iterable[str]) -> str:
    """The commands, folded away."""
    unique = "\n".join(dict.fromkeys(commands))
    if not unique:
        return ""
    return f'<details class="how"><summary>command</summary><pre>{escape(unique)}</pre></details>'


def legend(names: Sequence[tuple[int, str]]) -> str:
    """A button for each key, which shows or hides its lines in the panel around it."""
    buttons = "".join(
        f'<button type="button" class="{colour(key)}" data-toggle="{key}" aria-pressed="true">'
        f"<i></i>{escape(name)}</button>"
        for key, name in names
    )
    return f'<div class="legend">{buttons}</div>'


def panel(figures: Iterable[str], names: Sequence[tuple[int, str]] = (), title: str = "") -> str:
    """Figures side by side, with one legend for all of them."""
    head = f"<h3>{escape(title)}</h3>" if title else ""
    keys = legend(names) if len(names) > 1 else ""
    return f'<div class="panel">{head}{keys}<div class="grid">{"".join(figures)}</div></div>'


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], name: str = "") -> str:
    """An HTML table of texts; the first column names the rows. With a name it can be loaded down
    as CSV."""
    rows = [list(row) for row in rows]
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    body = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(f"<td>{escape(value)}</td>" for value in row[1:])
        + "</tr>"
        for row in rows
    )
    tools = f'<div class="tools">{download(name, columns, rows)}</div>' if name else ""
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        f"</div>{tools}"
    )


def notes(lines: Iterable[str]) -> str:
    """Remarks, one a paragraph."""
    return "".join(f'<p class="remark">{escape(line)}</p>' for line in lines)


def slug(name: str) -> str:
    """A name that is safe as an id and as a file: letters, digits and dashes."""
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-").lower() or "data"


def percent(share: float) -> str:
    return f"{100 * share:.1f}\N{NO-BREAK SPACE}%"
