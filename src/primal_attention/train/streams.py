"""Trained models of what comes next, from the folder of their run: events and texts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from ..runs.errors import RunError
from ..runs.files import read_object
from .config import EventConfig, LanguageConfig
from .run import read_config

if TYPE_CHECKING:
    from ..models.language import LanguageModel
    from ..tasks.language.text import Vocabulary

KINDS: dict[str, type[EventConfig] | type[LanguageConfig]] = {
    "events": EventConfig,
    "text": LanguageConfig,
}


class Stored(NamedTuple):
    """What a run has left: its settings, how it reads, the file of the weights that count."""

    config: Any
    reading: dict[str, Any]
    weights: Path


def reads(run: Path) -> str | None:
    """What a run reads, "events", "text" or another kind; None where it does not say."""
    path = run / "reader.json"
    return str(read_object(path).get("reads")) if path.is_file() else None


def predict_events(run: Path, new: Path, out: IO[str]) -> int:
    """Write what a run of events expects after every sequence of a table; how many there were."""
    from ..models.events import EventModel
    from ..tasks.events.predict import predict_table
    from .checkpoint import load_weights

    stored = _read(run, "events", "names")
    names = tuple(stored.reading["names"])
    model = EventModel(len(names), **stored.config.model_options())
    load_weights(model, stored.weights)
    return predict_table(model.eval(), names, new, out)


def language_model(run: Path) -> tuple[LanguageModel, Vocabulary]:
    """The model of a run that learned a language, and its tokens."""
    from ..models.language import LanguageModel
    from ..tasks.language.text import Vocabulary
    from .checkpoint import load_weights

    stored = _read(run, "text", "tokens", "words")
    vocabulary = Vocabulary.from_dict(stored.reading)
    model = LanguageModel(len(vocabulary), **stored.config.model_options())
    load_weights(model, stored.weights)
    return model.eval(), vocabulary


def generate(
    run: Path,
    text: str,
    *,
    tokens: int = 100,
    temperature: float = 1.0,
    top: int | None = None,
    seed: int = 0,
) -> Iterator[str]:
    """The tokens that a run of a language adds to a text, as pieces of text; every token costs one
    step of a stream. The unknown token is never drawn."""
    import torch

    if tokens < 1:
        raise ValueError(f"tokens is {tokens}; expected at least 1")
    model, vocabulary = language_model(run)
    begin = vocabulary.encode(text)
    if vocabulary.kind == "words":
        begin = begin[:-1]  # the line goes on
    if not len(begin):
        raise ValueError("the text is empty; expected at least one token to go on from")
    drawn = model.generate(
        begin.tolist(), temperature=temperature, top=top, without=(0,),
        generator=torch.Generator().manual_seed(seed),
    )  # fmt: skip
    for _, token in zip(range(tokens), drawn, strict=False):
        yield vocabulary.piece(token)


def _read(run: Path, kind: str, *keys: str) -> Stored:
    """Of a run of a kind, whose reader.json has these keys."""
    config = read_config(run)
    if not isinstance(config, KINDS[kind]):
        example = KINDS[kind].EXAMPLE
        raise RunError(f"{run} is a run of {config.task}; expected one like {example}")
    path = run / "best.safetensors"
    if not path.is_file() or not (run / "reader.json").is_file():
        raise RunError(f"{run} has no weights yet; expected the folder of a finished run")
    reading = read_object(run / "reader.json")
    for key in keys:
        if key not in reading:
            raise RunError(f"{run / 'reader.json'} is damaged: no {key!r}")
    return Stored(config, reading, path)
