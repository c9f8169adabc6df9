"""An explanation of a case with its names: as a sentence, as JSON, as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runs.extras import is_installed
from ..runs.files import write_json, write_texts
from .style import MUTED, PALETTE, new_figure, save, style

if TYPE_CHECKING:
    from ..analysis import Explanation

MOST_CLASSES = 1000  # that are listed; a vocabulary is not


@dataclass(frozen=True)
class Told:
    """A case: the explanation, what its units are called, and the class names."""

    name: str
    explanation: Explanation
    words: tuple[str, ...]
    classes: tuple[str, ...]
    true: str | None
    series: Any = None  # (N, C), to be drawn

    def sentence(self) -> str:
        found = self.explanation
        said = f"{self.predicted} ({found.probability:.3f})"
        if not found.removals:
            return f"{said}; no set within {found.evaluations} calls changes it"
        first = found.removals[0]
        parts = ", ".join(self.words[i] for i in first.units)
        small = "no smaller set does" if found.smallest else "smaller sets were not all tried"
        how = "" if found.exact else " (removed parts have the mean colour)"
        return (
            f"{said}; without [{parts}] it is {self.classes[first.prediction]}{how}; "
            f"{found.calls} calls, {small}"
        )

    @property
    def predicted(self) -> str:
        return self.classes[self.explanation.prediction]

    def to_dict(self) -> dict[str, Any]:
        """Numbers, lists and strings only: ready for JSON."""
        listed = list(self.classes) if len(self.classes) <= MOST_CLASSES else []
        return {
            "case": self.name,
            "true": self.true,
            "predicted": self.predicted,
            "classes": listed,
            "words": list(self.words),
            "sentence": self.sentence(),
            **self.explanation.to_dict(),
        }


def write_explanation(told: Told, folder: Path) -> list[Path]:
    """explain-<case>.json, and a picture: of a series where matplotlib is at hand, else a page with
    marked words."""
    name = f"explain-{told.name}"
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / f"{name}.json", told.to_dict())
    written = [folder / f"{name}.json"]
    if told.series is None:
        return written + write_texts(folder, {f"{name}.html": marked_words(told)})
    if is_installed("matplotlib"):
        written += draw_series(told, folder / name)
    return written


def marked_words(told: Told) -> str:
    """A small page: the units in their order, those of the first set marked."""
    first = told.explanation.removals[0].units if told.explanation.removals else ()
    parts = [
        f"<mark>{escape(word)}</mark>" if number in first else escape(word)
        for number, word in enumerate(told.words)
    ]
    return (
        '<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>Case '
        f"{escape(told.name)}</title><body><p>{escape(told.sentence())}</p>"
        f"<p>{' '.join(parts)}</p></body></html>\n"
    )


def draw_series(told: Told, path: Path, *, formats: Sequence[str] = ("png",)) -> list[Path]:
    """The channels of a series, with the segments of the first set marked."""
    from textwrap import fill

    with style():
        figure = new_figure(9.5, 3.2, fill(told.sentence(), 110))
        axes = figure.subplots()
        for channel in range(min(told.series.shape[1], 12)):
            axes.plot(told.series[:, channel], color=MUTED, linewidth=0.9, alpha=0.8)
        removals = told.explanation.removals
        for number in removals[0].units if removals else ():
            unit = told.explanation.units[number]
            axes.axvspan(unit[0] - 0.5, unit[-1] + 0.5, color=PALETTE[1], alpha=0.25, linewidth=0)
        axes.set(xlabel="position", ylabel="channels")
        return save(figure, path, formats)
