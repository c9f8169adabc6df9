"""Explanations of cases: of a run, of a saved estimator, of a classifier of Hugging Face.

A series is cut into segments, a text into words, an image into a grid; of events and of language
models, single events and tokens of the history are removed, and the class is what comes next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runs.errors import RunError
from .told import Told

if TYPE_CHECKING:
    from torch import Tensor

    from ..tasks.events.objective import Events
    from ..tasks.language.objective import Language
    from ..tasks.own.columns import Columns

SEGMENTS = 16  # of a series
WORDS_OF_BYTES = "lra/text"
LONGEST = 20  # characters of a token that is shown


@dataclass(frozen=True)
class Wish:
    """Which case is to be explained, and how. `at`: of a history, the number of the event or token
    that is predicted, from 1, the last by default. `search` goes to `analysis.explain`."""

    case: int = 0
    at: int | None = None
    units: int | None = None
    split: str = "selection"
    order: str | None = None
    search: Mapping[str, Any] = field(default_factory=dict)

    def options(self, without: str = "attention") -> dict[str, Any]:
        return {**self.search, "order": self.order or without}

    def number(self, count: int, noun: str = "case") -> int:
        if not 0 <= self.case < count:
            raise RunError(f"the {noun} is {self.case}; expected 0 to {count - 1}")
        return self.case

    def place(self, count: int, noun: str) -> int:
        """How many come before what is predicted, of so many that can be."""
        at = count if self.at is None else self.at
        if not 2 <= at <= count:
            raise RunError(
                f"--at is {at}; expected 2 to {count}, an {noun} of this case that is predicted "
                "from others"
            )
        return at


def explain_folder(
    path: Path,
    case: int,
    *,
    data: Path | None = None,
    text: Path | None = None,
    columns: Columns | None = None,
    at: int | None = None,
    units: int | None = None,
    split: str = "selection",
    order: str | None = None,
    tell: Callable[[int, int], None] | None = None,
    **search: Any,
) -> Told:
    """Explain a case of a run (of seeds: the first), of a file for an estimator, or a line of a
    text for a classifier."""
    from ..tasks.own.columns import Columns as Named
    from ..train.folders import kind_of
    from ..train.judged import runs_in

    wish = Wish(case, at, units, split, order, {**search, "tell": tell})
    kind = kind_of(path)
    named = (("--text", text, "hugging face"), ("--data", data, "estimator"))
    for option, given, wanted in named:
        if given is not None and kind != wanted:
            noun = "Hugging Face model" if wanted == "hugging face" else "saved estimator"
            raise RunError(f"{option} was given with the {kind} {path}; expected a {noun}")
    if kind == "hugging face":
        return _of_text(path, text, wish)
    if kind == "estimator":
        return _of_estimator(path, data, Named() if columns is None else columns, wish)
    runs = runs_in(path)
    if not runs:
        raise RunError(f"{path} has no finished seed; expected at least one")
    return _of_run(next(iter(runs.values())), wish)


# -- runs ------------------------------------------------------------------------------------------


def _of_run(path: Path, wish: Wish) -> Told:
    from ..tasks.events.objective import Events
    from ..tasks.language.objective import Language
    from ..train.judged import open_any, with_classes

    data, model = open_any(path)
    if isinstance(data, Events):
        return _of_events(path, data, model, wish)
    if isinstance(data, Language):
        return _of_tokens(path, data, model, wish)
    return _of_case(path, with_classes(path, data), model, wish)


def _of_case(path: Path, data: Any, model: Any, wish: Wish) -> Told:
    from ..analysis import explain
    from ..analysis.cases import word_units

    examples = _split(path, data, wish)
    case = wish.number(len(examples))
    batch = examples.__getitems__([case])
    inputs, padding = batch.inputs, batch.padding
    if padding.dim() == 3:
        raise RunError(f"{path} classifies pairs of sequences; expected one sequence a case")
    parts: Any = wish.units
    words: list[str] | None = None
    if inputs.dim() == 2 and parts is None and data.config.task == WORDS_OF_BYTES:
        valid = inputs[0][~padding[0]]
        text = bytes((valid - 1).clamp(0, 255).tolist())
        parts = word_units(text)
        words = [text[u[0] : u[-1] + 1].decode(errors="replace") for u in parts]
    elif inputs.dim() == 3 and parts is None:
        parts = min(SEGMENTS, int((~padding[0]).sum()))
    call = inputs if inputs.dim() == 4 else (inputs, padding)
    found = explain(model, call, units=parts, **wish.options())
    names = words or [_span(unit) for unit in found.units]
    if inputs.dim() == 4:
        names = [f"part {i}" for i in range(len(found.units))]
    target = int(batch.targets[0])
    true = examples.classes[target] if target >= 0 else None
    series = inputs[0][~padding[0]].numpy() if inputs.dim() == 3 else None
    return Told(str(case), found, tuple(names), tuple(examples.classes), true, series)


def _of_events(path: Path, data: Events, model: Any, wish: Wish) -> Told:
    """The type of an event, from those before it in its sequence."""
    from ..analysis import explain
    from ..tasks.events.sets import EventData

    chosen = _split(path, data, wish)
    events = chosen if isinstance(chosen, EventData) else EventData(chosen)
    case = wish.number(len(events))
    batch = events.__getitems__([case])
    before = wish.place(batch.types.shape[1] + 1, "event") - 1
    columns = [batch.types, batch.times, *([batch.next_times] if model.known_time else [])]
    found = explain(
        model, tuple(one[:, :before] for one in columns), units=wish.units, **wish.options()
    )
    names, moment = events.data.names, float(batch.next_times[0, before - 1])
    words = [
        _joined([f"{names[int(batch.types[0, i])]} {moment - float(batch.times[0, i]):.3g} before"
                 for i in unit])
        for unit in found.units
    ]  # fmt: skip
    true = names[int(batch.next_types[0, before - 1])]
    name = str(case) if wish.at is None else f"{case}-{wish.at}"
    return Told(name, found, tuple(words), tuple(names), true)


def _of_tokens(path: Path, data: Language, model: Any, wish: Wish) -> Told:
    """A token of a piece of text, from those before it."""
    from ..analysis import explain
    from ..tasks.language.text import TextData

    chosen = _split(path, data, wish)
    pieces = chosen if isinstance(chosen, TextData) else TextData(chosen, data.config.length)
    case = wish.number(len(pieces))
    piece = pieces.__getitems__([case])
    count = int((piece.targets[0] >= 0).sum())
    before = wish.place(count + 1, "token") - 1
    tokens: Tensor = piece.tokens[:, :before]
    found = explain(model, tokens, units=wish.units, **wish.options())
    known = data.vocabulary
    words = [
        _joined([_shown(known.piece(int(tokens[0, i]))) for i in unit]) for unit in found.units
    ]
    true = _shown(known.piece(int(piece.targets[0, before - 1])))
    classes = tuple(_shown(known.piece(number)) for number in range(len(known)))
    name = str(case) if wish.at is None else f"{case}-{wish.at}"
    return Told(name, found, tuple(words), classes, true)


def _split(path: Path, data: Any, wish: Wish) -> Any:
    found = data.selection if wish.split == "selection" else data.test()
    if found is None:
        raise RunError(f"{path} has no test set at hand; expected --split selection")
    return found


# -- models that bring no cases --------------------------------------------------------------------


def _of_estimator(path: Path, data: Path | None, columns: Columns, wish: Wish) -> Told:
    """The segments of a series are left out of it, and the whole estimator is asked of the rest;
    the order is that of its network."""
    from ..analysis import explain
    from ..train.folders import read_estimator, read_series, shorter_series

    if data is None:
        raise RunError(f"{path} is a saved estimator; expected --data FILE with cases")
    estimator = read_estimator(path)
    file = read_series(data, estimator, columns)
    number = wish.number(len(file.series))
    series = file.series[number]
    parts = min(SEGMENTS, len(series)) if wish.units is None else wish.units
    case = shorter_series(estimator, series, parts)
    options = wish.options("random" if estimator.model_ is None else "attention")
    if estimator.model_ is None and options["order"] != "random":
        raise RunError(
            f"{path} has no network, only the frozen bank; expected --order random, or none"
        )
    found = explain(case.model, case, **options)
    names = [_span(unit) for unit in found.units]
    classes = tuple(map(str, estimator.classes_))
    label = file.labels[number]
    true = classes[label] if label >= 0 else None
    return Told(str(number), found, tuple(names), classes, true, series)


def _of_text(path: Path, text: Path | None, wish: Wish) -> Told:
    from ..analysis import explain
    from ..train.folders import Classifier

    if text is None:
        raise RunError(f"{path} is a Hugging Face model; expected --text with one input a line")
    lines = [line for line in text.read_text().splitlines() if line.strip()]
    if wish.case >= len(lines):
        raise RunError(
            f"the case is {wish.case}; expected 0 to {len(lines) - 1}, the lines of {text}"
        )
    classifier = Classifier.read(path)
    tokenizer = classifier.tokenizer
    encoded = tokenizer(lines[wish.case], return_tensors="pt", truncation=True)
    tokens = tokenizer.convert_ids_to_tokens(encoded["input_ids"][0].tolist())
    special = set(tokenizer.all_special_tokens)
    parts: Any = wish.units
    if parts is None:  # pieces of a word go together
        parts = []
        for place, token in enumerate(tokens):
            if token in special:
                continue
            if parts and token.startswith("##"):
                parts[-1].append(place)
            else:
                parts.append([place])
    found = explain(classifier.model, dict(encoded), units=parts, **wish.options())
    words = ["".join(tokens[i].removeprefix("##") for i in unit) for unit in found.units]
    return Told(str(wish.case), found, tuple(words), classifier.classes, None)


# -- names -----------------------------------------------------------------------------------------


def _span(unit: Sequence[int]) -> str:
    return str(unit[0]) if len(unit) == 1 else f"{unit[0]} to {unit[-1]}"


def _joined(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{words[0]} ... {words[-1]}"


def _shown(token: str) -> str:
    """A token that can be read in a sentence: without the space before it."""
    word = token if token.isspace() or not token.strip() else token.strip()
    return repr(word) if word.isspace() else word[:LONGEST]
