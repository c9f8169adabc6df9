"""Explanations of cases of a run, or of texts for a Hugging Face classifier: found, written, drawn.

A series is cut into segments and a text into words; images into a grid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runs.errors import RunError
from ..runs.extras import is_installed
from ..runs.files import read_json, write_json, write_texts
from .style import MUTED, PALETTE, new_figure, save, style

if TYPE_CHECKING:
    from torch import nn

    from ..analysis import Explanation

SEGMENTS = 16  # of a series
WORDS_OF_BYTES = "lra/text"


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
        said = f"{self.classes[found.prediction]} ({found.probability:.3f})"
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

    def to_dict(self) -> dict[str, Any]:
        return {
            "case": self.name,
            "true": self.true,
            "classes": list(self.classes),
            "words": list(self.words),
            "sentence": self.sentence(),
            **self.explanation.to_dict(),
        }


def explain_folder(
    path: Path,
    case: int,
    *,
    text: Path | None = None,
    units: int | None = None,
    split: str = "selection",
    tell: Callable[[int, int], None] | None = None,
    **options: Any,
) -> Told:
    """Explain a case of a run (of seeds: the first), or a line of a text for a classifier."""
    if case < 0:
        raise RunError(f"the case is {case}; expected 0 or more")
    seeds = sorted(path.glob("seed-*/config.json"))
    if seeds and not (path / "config.json").exists():
        path = seeds[0].parent
    if not (path / "config.json").exists():
        raise RunError(f"{path} has no config.json; expected a run or a Hugging Face classifier")
    if "model_type" in read_json(path / "config.json"):
        return _of_text(path, case, text, units, tell, options)
    if text is not None:
        raise RunError(f"--text was given with the run {path}; expected a Hugging Face model")
    return _of_run(path, case, units, split, tell, options)


def _of_run(
    path: Path, case: int, units: int | None, split: str, tell: Any, options: dict[str, Any]
) -> Told:
    from ..analysis import explain
    from ..analysis.cases import word_units
    from ..train.judged import open_classes

    data, model = open_classes(path)
    examples = data.selection if split == "selection" else data.test()
    if examples is None:
        raise RunError(f"{path} has no test set at hand; expected --split selection")
    if case >= len(examples):
        raise RunError(f"the case is {case}; expected 0 to {len(examples) - 1}")
    batch = examples.__getitems__([case])
    inputs, padding = batch.inputs, batch.padding
    if padding.dim() == 3:
        raise RunError(f"{path} classifies pairs of sequences; expected one sequence a case")
    parts: Any = units
    words: list[str] | None = None
    if inputs.dim() == 2 and units is None and data.config.task == WORDS_OF_BYTES:
        valid = inputs[0][~padding[0]]
        text = bytes((valid - 1).clamp(0, 255).tolist())
        parts = word_units(text)
        words = [text[u[0] : u[-1] + 1].decode(errors="replace") for u in parts]
    elif inputs.dim() == 3 and units is None:
        parts = min(SEGMENTS, int((~padding[0]).sum()))
    found = explain(
        model, inputs if inputs.dim() == 4 else (inputs, padding), units=parts, tell=tell, **options
    )
    names = words or [_span(unit) for unit in found.units]
    if inputs.dim() == 4:
        names = [f"part {i}" for i in range(len(found.units))]
    target = int(batch.targets[0])
    true = examples.classes[target] if target >= 0 else None
    series = inputs[0][~padding[0]].numpy() if inputs.dim() == 3 else None
    return Told(str(case), found, tuple(names), tuple(examples.classes), true, series)


def _of_text(
    path: Path, case: int, text: Path | None, units: int | None, tell: Any, options: dict[str, Any]
) -> Told:
    from ..analysis import explain
    from ..convert.pretrained import require_transformers

    if text is None:
        raise RunError(f"{path} is a Hugging Face model; expected --text with one input a line")
    lines = [line for line in text.read_text().splitlines() if line.strip()]
    if case >= len(lines):
        raise RunError(f"the case is {case}; expected 0 to {len(lines) - 1}, the lines of {text}")
    transformers = require_transformers()
    tokenizer = transformers.AutoTokenizer.from_pretrained(path, local_files_only=True)
    model: nn.Module = transformers.AutoModelForSequenceClassification.from_pretrained(
        path, local_files_only=True
    )
    encoded = tokenizer(lines[case], return_tensors="pt", truncation=True)
    tokens = tokenizer.convert_ids_to_tokens(encoded["input_ids"][0].tolist())
    special = set(tokenizer.all_special_tokens)
    parts: Any = units
    if units is None:  # pieces of a word go together
        parts = []
        for place, token in enumerate(tokens):
            if token in special:
                continue
            if parts and token.startswith("##"):
                parts[-1].append(place)
            else:
                parts.append([place])
    found = explain(model.eval(), dict(encoded), units=parts, tell=tell, **options)
    words = ["".join(tokens[i].removeprefix("##") for i in unit) for unit in found.units]
    names = getattr(model.config, "id2label", {})
    count = len(names) or 2
    classes = tuple(str(names.get(i, i)) for i in range(count))
    return Told(str(case), found, tuple(words), classes, None)


def _span(unit: Sequence[int]) -> str:
    return str(unit[0]) if len(unit) == 1 else f"{unit[0]} to {unit[-1]}"


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
