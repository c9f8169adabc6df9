"""The page of an adaptation: quality against steps, errors by block, before and after."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..runs.files import explained, write_bytes
from .charts import Mark, Series, lines
from .page import document
from .sections.base import Section, figure, notes, panel, percent, table

if TYPE_CHECKING:
    from ..bench.lengths import Pace
    from ..train.adapt import Adaptation


def write_adaptation(
    found: Adaptation,
    out: Path | str,
    *,
    command: str,
    title: str,
    paces: Sequence[Pace] = (),
) -> Path:
    """Write the page of an adaptation, one HTML file. paces: time and memory, where known."""
    sections = [_verdict(found), _curves(found, command), _blocks(found, command)]
    if paces:
        sections.append(_paces(paces, command))
    path = Path(out)
    with explained(f"write {path}"):
        write_bytes(path, document(title, sections, command).encode())
    return path


def _verdict(found: Adaptation) -> Section:
    before, after = found.before, found.after
    rows = [
        ["agreement with the original", percent(before.agreement), percent(after.agreement)],
        ["distance of the outputs", f"{before.outputs:.4f}", f"{after.outputs:.4f}"],
        ["loss on held-out batches", f"{before.loss:.4f}", f"{after.loss:.4f}"],
    ]
    if before.quality is not None and after.quality is not None:
        rows.append(["quality", f"{before.quality:.4f}", f"{after.quality:.4f}"])
    said = [
        f"{len(found.layers)} attentions were converted: {', '.join(found.layers)}.",
        f"The weights are those of step {found.best}; {found.ended}.",
    ]
    if found.original is not None:
        said.append(f"Quality of the original: {found.original:.4f}.")
    body = table(["on held-out batches", "converted", "adapted"], rows, "before and after")
    return Section("verdict", "Before and after", body + notes(said))


def _curves(found: Adaptation, command: str) -> Section:
    steps = [each.step for each in found.history]
    curves = {
        "agreement": [each.agreement for each in found.history],
        "loss": [each.loss for each in found.history],
    }
    if found.history[0].quality is not None:
        curves["quality"] = [each.quality or 0.0 for each in found.history]
    figures = []
    for name, values in curves.items():
        at = values[found.history.index(found.after)]
        marks = [Mark(found.best, at, 0, f"step {found.best}: {at:.4f}")]
        chart = lines(steps, [Series(name, 0, values)], x_name="step", y_name=name, marks=marks)
        caption = f"{name.capitalize()} against steps"
        note = "On held-out batches. Dot: the weights that count."
        figures.append(figure(f"adaptation {name}", caption, chart, [command], note))
    return Section("curves", "Quality against steps", panel(figures))


def _blocks(found: Adaptation, command: str) -> Section:
    places = list(range(len(found.blocks)))
    series = [
        Series(name, key, each.blocks)
        for key, (name, each) in enumerate(
            {"converted": found.before, "adapted": found.after}.items()
        )
    ]
    chart = lines(places, series, x_name="block", y_name="error")
    note = "Squared error of the hidden states over their variance, in the order of the model."
    names = [(one.key, one.name) for one in series]
    body = panel([figure("adaptation blocks", "Error by block", chart, [command], note)], names)
    rows = [
        [name, f"{before:.4f}", f"{after:.4f}"]
        for name, before, after in zip(
            found.blocks, found.before.blocks, found.after.blocks, strict=True
        )
    ]
    return Section(
        "blocks", "Errors by block", body + table(["block", "converted", "adapted"], rows)
    )


def _paces(paces: Sequence[Pace], command: str) -> Section:
    lengths = [each.length for each in paces]
    both = ("original", "converted")
    figures = []
    for unit, name in (("seconds", "time"), ("megabytes", "memory")):
        series = [
            Series(kind, key, [getattr(getattr(each, kind), unit) for each in paces])
            for key, kind in enumerate(both)
        ]
        chart = lines(lengths, series, x_name="length", y_name=unit)
        note = "One sequence, forward without gradients; memory is above the model itself."
        figures.append(
            figure(
                f"adaptation {name}", f"{name.capitalize()} against length", chart, [command], note
            )
        )
    head = ["length", *(f"{kind}, {unit}" for unit in ("s", "MB") for kind in both)]
    head += ["faster", "less memory"]
    rows = [
        [
            f"{each.length:,}",
            *(f"{getattr(each, kind).seconds:.3f}" for kind in both),
            *(f"{getattr(each, kind).megabytes:.0f}" for kind in both),
            _times(each.original.seconds, each.converted.seconds),
            _times(each.original.megabytes, each.converted.megabytes),
        ]
        for each in paces
    ]
    names = [(key, kind) for key, kind in enumerate(both)]
    return Section(
        "paces", "Time and memory on this machine", panel(figures, names) + table(head, rows)
    )


def _times(old: float, new: float) -> str:
    return f"{old / new:.1f}x" if new > 0 else ""
