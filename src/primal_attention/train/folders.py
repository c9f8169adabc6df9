"""Folders of trained models that bring no cases, a saved estimator and a classifier of Hugging
Face, and cases for them from a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from ..analysis.cases import Case, units_of
from ..convert.pretrained import require_transformers
from ..names import near
from ..runs.errors import RunError
from ..runs.files import read_object
from ..tasks.own.columns import TARGETS, Columns
from ..tasks.own.files import read_cases
from ..tasks.own.table import Table, opened
from ..tasks.series import Floats
from .asked import Asked
from .judged import Opened
from .seeds import SEEDS_FILE

Kind = Literal["run", "estimator", "hugging face"]

BATCH = 32
LEAST = 1e-12  # of a probability whose logarithm is taken
ESTIMATOR = "primal_attention.PrimalFormerClassifier/"


def kind_of(path: Path) -> Kind:
    """What a folder holds: a run or seeds of one, a saved estimator, or a model of Hugging Face."""
    if (path / SEEDS_FILE).is_file():
        return "run"
    if not (path / "config.json").is_file():
        raise RunError(
            f"{path} has no config.json; expected a run, a saved estimator or a Hugging Face "
            "classifier"
        )
    stored = read_object(path / "config.json")
    if "model_type" in stored:
        return "hugging face"
    return "estimator" if "format" in stored else "run"


def place_for(path: Path, out: Path | None) -> Path:
    """Where files about a folder go: where the user says, else into it; not into that of an
    estimator, which is saved as a whole, but into the working folder."""
    if out is not None:
        return out
    return Path() if kind_of(path) == "estimator" else path


def read_estimator(path: Path) -> Any:
    """A saved PrimalFormerClassifier that needs no times."""
    from .estimator import PrimalFormerClassifier

    form = str(read_object(path / "config.json").get("format"))
    if not form.startswith(ESTIMATOR):
        raise RunError(
            f"{path} is a saved {form.rpartition('/')[0]}, which says no classes of series; "
            "expected a PrimalFormerClassifier"
        )
    found = PrimalFormerClassifier.load(path)
    if found.grid_ is not None:
        raise RunError(f"{path} was fitted with times; expected an estimator without")
    return found


@dataclass(frozen=True, eq=False)
class SeriesFile:
    """Series (length, channels) of a file or folder, with their class as a number."""

    series: list[Floats]
    labels: list[int]


def read_series(path: Path, estimator: Any, columns: Columns) -> SeriesFile:
    """The cases of a file for an estimator; their classes must be among its own."""
    cases = read_cases(path, columns)
    known = {str(name): number for number, name in enumerate(estimator.classes_)}
    labels = []
    for case in cases.cases:
        if case.target not in known:
            hint = near(str(case.target), known)
            raise RunError(
                f"{path}: {case.name!r} has the class {case.target!r}{hint}; expected one of "
                f"{', '.join(known)}"
            )
        labels.append(known[case.target])
    return SeriesFile([case.series for case in cases.cases], labels)


@dataclass(frozen=True, eq=False)
class AskedSeries(Asked):
    """Series for an estimator, which says probabilities: their logarithms are the logits."""

    file: SeriesFile
    split: str
    noun: str = "cases"
    turned: str = "series that run backwards"

    def batches(self) -> Iterator[list[int]]:
        yield from _parts(len(self.file.series))

    def logits(self, model: Any, batch: list[int], *, strange: bool = False) -> Tensor:
        series = [self.file.series[i].T for i in batch]
        return logs(model, [x[:, ::-1].copy() for x in series] if strange else series)

    def labels(self, batch: list[int]) -> Tensor:
        return torch.tensor([self.file.labels[i] for i in batch])


def logs(estimator: Any, series: Sequence[Floats]) -> Tensor:
    """The logarithms of what an estimator says of series (channels, length)."""
    said = estimator.predict_proba(list(series))
    return torch.from_numpy(np.log(np.maximum(said, LEAST)))


def shorter_series(estimator: Any, series: Floats, units: int) -> Case:
    """A series (length, channels) of which units can be left out: the estimator is asked of what is
    left, a shorter series. Attentions are those of its network on all cases, in the order that the
    series has there."""
    network = estimator.model_
    inputs: Any = (torch.from_numpy(series)[None], None)
    if network is not None:
        ensemble = estimator.ensemble_
        batch = ensemble._data(ensemble._drawn([series])).__getitems__([0])
        inputs = (batch.inputs.to(next(network.parameters()).dtype), batch.padding)

    def answer(hidden: Tensor) -> Tensor:
        kept = (~hidden).numpy()
        return logs(estimator, [np.ascontiguousarray(series[one].T) for one in kept])

    length = len(series)
    chosen = units_of(torch.ones(length, dtype=torch.bool), units)
    return Case(network or nn.Identity(), inputs, chosen, length, answer=answer)


@dataclass(frozen=True, eq=False)
class Classifier:
    """A sequence classifier of Hugging Face with its tokenizer and the names of its classes."""

    model: Any
    tokenizer: Any
    classes: tuple[str, ...]

    @classmethod
    def read(cls, path: Path) -> Classifier:
        transformers = require_transformers()
        tokenizer = transformers.AutoTokenizer.from_pretrained(path, local_files_only=True)
        model = transformers.AutoModelForSequenceClassification.from_pretrained(
            path, local_files_only=True
        )
        names = getattr(model.config, "id2label", {}) or {}
        count = len(names) or int(model.config.num_labels)
        return cls(model.eval(), tokenizer, tuple(str(names.get(i, i)) for i in range(count)))


@dataclass(frozen=True, eq=False)
class AskedTexts(Asked):
    """Texts for a classifier of Hugging Face."""

    texts: tuple[str, ...]
    classes: tuple[int, ...]
    split: str
    noun: str = "texts"
    turned: str = "words in reversed order"

    def batches(self) -> Iterator[list[int]]:
        yield from _parts(len(self.texts))

    def logits(self, model: Classifier, batch: list[int], *, strange: bool = False) -> Tensor:
        texts = [self.texts[i] for i in batch]
        if strange:
            texts = [" ".join(reversed(text.split())) for text in texts]
        encoded = model.tokenizer(texts, return_tensors="pt", truncation=True, padding=True)
        found: Tensor = model.model(**encoded).logits
        return found

    def labels(self, batch: list[int]) -> Tensor:
        return torch.tensor([self.classes[i] for i in batch])


def read_texts(path: Path, classes: Sequence[str], target: str | None) -> AskedTexts:
    """A table with a column `text` and one of classes, by name or number."""
    with opened(path) as lines:
        table = Table(lines, str(path))
        place = table.place("text", "the texts")
        usual = [name for name in table.header if name.lower() in TARGETS]
        if target is None and len(usual) != 1:
            raise RunError(
                f"{path} has the columns {', '.join(table.header)}; expected --target, that of the "
                "classes"
            )
        column = usual[0] if target is None else target
        at, texts, found = table.place(column, "--target"), [], []
        known = {name: number for number, name in enumerate(classes)}
        known |= {str(number): number for number in range(len(classes)) if str(number) not in known}
        for row in table:
            label = row.cells[at].strip()
            if label not in known:
                raise table.error(row.line, column, label, f"one of {', '.join(classes)}")
            texts.append(row.cells[place])
            found.append(known[label])
    if not texts:
        raise RunError(f"{path} has no rows; expected at least one")
    return AskedTexts(tuple(texts), tuple(found), "file")


def open_folder(path: Path, data: Path | None, columns: Columns) -> Opened:
    """An estimator or a classifier with the cases of a file; a RunError where none is named."""
    kind = kind_of(path)
    if data is None:
        noun = "saved estimator" if kind == "estimator" else "Hugging Face classifier"
        raise RunError(f"{path} is a {noun} without cases; expected --data FILE with their classes")
    if kind == "estimator":
        estimator = read_estimator(path)
        file = read_series(data, estimator, columns)
        return Opened(estimator, AskedSeries(file, "file"), None)
    classifier = Classifier.read(path)
    return Opened(classifier, read_texts(data, classifier.classes, columns.target), None)


def _parts(count: int) -> Iterator[list[int]]:
    for first in range(0, count, BATCH):
        yield list(range(first, min(first + BATCH, count)))
