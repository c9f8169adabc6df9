"""Accuracies to set against speed: from a JSON or CSV file, or from run folders."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..attention import attention_info
from ..runs.errors import RunError
from ..runs.files import explained, read_json, read_object
from ..train.config import config_in
from .candidates import KINDS, parse_candidate
from .results import Results


def read_accuracies(sources: Iterable[Path | str]) -> dict[str, float]:
    """Accuracy in per cent by candidate. A source is a JSON object {name: accuracy}, a CSV file
    with the columns name and accuracy, or a folder with finished runs somewhere in it. Numbers up
    to 1 are shares. Several accuracies of one candidate, as of several seeds, are averaged."""
    found: dict[str, list[float]] = {}
    for source in sources:
        path = Path(source)
        for name, value in _pairs(path):
            found.setdefault(name, []).append(_percent(path, name, value))
    return {name: statistics.mean(values) for name, values in found.items()}


def match_accuracies(results: Results, accuracies: dict[str, float]) -> dict[str, float]:
    """The accuracies of the candidates that were measured; `primal` and `primal:tied` are one."""
    known = {_canonical(name): value for name, value in accuracies.items()}
    texts = {text: _canonical(text) for text in results.candidates}
    return {text: known[key] for text, key in texts.items() if key in known}


def _pairs(path: Path) -> list[tuple[str, Any]]:
    if path.is_dir():
        runs = sorted(path.rglob("result.json"))
        if not runs:
            raise RunError(
                f"{path} has no result.json in it; expected the folders of finished runs"
            )
        return [_of_run(run.parent) for run in runs]
    if path.suffix == ".csv":
        return _of_csv(path)
    found = read_json(path)
    if not isinstance(found, dict):
        raise RunError(f"{path} holds no JSON object; expected {{name: accuracy}}")
    if "accuracy" in found and path.name == "result.json":
        return [_of_run(path.parent)]
    return list(found.items())


def _of_run(run: Path) -> tuple[str, Any]:
    config = config_in(run / "config.json")
    layers = [
        f"{name}:{config.weights}" if KINDS in attention_info(name).options else name
        for name in config.attention
    ]
    text = layers[0] if len(set(layers)) == 1 else "+".join(layers)
    return text, read_object(run / "result.json").get("accuracy")


def _of_csv(path: Path) -> list[tuple[str, Any]]:
    with explained(f"read {path}"):
        rows = [row for row in csv.reader(path.read_text().splitlines()) if row]
    if any(len(row) != 2 for row in rows):
        raise RunError(f"{path} has a row without two columns; expected name,accuracy")
    return [(name.strip(), value) for name, value in rows if value.strip() != "accuracy"]


def _percent(path: Path, name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if isinstance(value, bool) or not 0 <= number <= 100:
        raise RunError(f"{path} has the accuracy {value!r} of {name}; expected 0 to 1, or per cent")
    return 100 * number if number <= 1 else number


def _canonical(text: str) -> tuple[Any, ...]:
    """Equal for names of the same candidate."""
    candidate = parse_candidate(text)
    if candidate.parts:
        return tuple(_canonical(part.text) for part in candidate.parts)
    if candidate.is_extra:
        return text, frozenset()
    options = dict(candidate.options)
    known = attention_info(candidate.name).options
    if KINDS in known:
        options.setdefault(KINDS, known[KINDS].default)
    return candidate.name, frozenset(options.items())
