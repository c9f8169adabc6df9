"""A trained run as a model: what it reads, what it answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ...runs.errors import RunError
from ...runs.files import read_object
from ...tasks import get_task
from ...tasks.classification.evaluate import TOKENS, similar_lengths
from ...tasks.classification.settings import RunConfig
from ...tasks.collection import is_collection, read_collection
from ...tasks.examples import Examples
from ...tasks.images.data import ImageReader
from ...tasks.images.folder import ENDINGS as IMAGES
from ...tasks.images.folder import decode
from ...tasks.images.sets import ImageSet
from ...tasks.own.columns import Columns
from ...tasks.own.files import stream
from ...tasks.series import Floats, SeriesReader, SeriesSet
from ..checkpoint import load_weights
from ..config import TableConfig, config_in
from ..run import load

READERS: dict[str, type[Any]] = {"series": SeriesReader, "images": ImageReader}
# what building a network raises if its settings or shapes were damaged
UNBUILT = (TypeError, ValueError, LookupError, RuntimeError, ArithmeticError, MemoryError)
TOGETHER = 256  # cases of a file that are in memory at once
WEIGHTS = ("best.safetensors", "last.safetensors", "model.safetensors")


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A trained model in eval mode, with what it reads.

    Predictions are those of the weights that count in the run's result. `classes` are in the order
    of the columns of `predict_proba`; a model of numbers has none.
    """

    path: Path
    config: RunConfig
    reader: Any  # a SeriesReader or an ImageReader
    module: nn.Module

    @property
    def classes(self) -> tuple[str, ...]:
        return () if self.predicts_values else tuple(self.reader.classes)

    @property
    def predicts_values(self) -> bool:
        """Whether it answers with a number, not with a class."""
        return getattr(self.reader, "scale", None) is not None

    @property
    def reads(self) -> str:
        """What a case is: "series", "images" or, of a table, "rows"."""
        return "images" if isinstance(self.reader, ImageReader) else "series"

    @property
    def reads_images(self) -> bool:
        return self.reads == "images"

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The class (text), or the number, of each case.

        Args:
            X: series (cases, channels, timepoints), a list of arrays (channels, timepoints_i) for
                unequal lengths, or a table (cases, timepoints) of one channel; images as bytes
                (cases, height, width, 3); or a file or folder as those for training, of which the
                target need not be there.
        """
        return self.answers(self.outputs(X))

    def predict_proba(self, X: Any) -> Floats:
        """Probabilities (cases, classes) in the order of `classes`; X as in `predict`."""
        if self.predicts_values:
            raise RunError(f"{self.path} predicts numbers; expected a run of classes")
        return self.probabilities(self.outputs(X))

    def memory(self) -> dict[str, Tensor]:
        """What it has to know beside its weights."""
        return {}

    def answers(self, outputs: Tensor) -> npt.NDArray[Any]:
        """Classes or numbers from the outputs of the network."""
        if (scale := getattr(self.reader, "scale", None)) is not None:
            mean, deviation = scale
            values: Floats = outputs[:, 0].double().numpy() * deviation + mean
            return values
        found: npt.NDArray[Any] = np.array(self.classes)[outputs.argmax(1).numpy()]
        return found

    def probabilities(self, outputs: Tensor) -> Floats:
        found: Floats = outputs.double().softmax(1).numpy()
        return found

    def outputs(self, X: Any) -> Tensor:
        """What the network says, (cases, classes) or (cases, 1)."""
        if isinstance(X, str | Path):
            return torch.cat([found for _, found in self.stream(Path(X))])
        if self.reads_images:
            return self._run(self.reader(_images(X, self.reader.shape["size"])))
        return self.of_series(self._series(X))

    def of_series(self, series: list[Floats]) -> Tensor:
        """Likewise of series (length_i, channels), which have been read already."""
        expected = self.reader.shape["channels"]
        for i, one in enumerate(series):
            if one.shape[1] != expected:
                raise RunError(
                    f"case {i} has {one.shape[1]} channels; expected {expected}, as {self.path} "
                    "was trained with"
                )
        labels = np.full(len(series), -1, dtype=np.int64)
        return self._run(self.reader(SeriesSet("X", series, labels, ())))

    def stream(
        self, path: Path, columns: Columns | None = None
    ) -> Iterator[tuple[list[str], Tensor]]:
        """Names and outputs of the cases of a file or a folder, a few hundred at a time: that much
        of a csv file or of a folder is in memory."""
        if self.reads_images:
            for files in _batched(image_files(path)):
                images = [decode(file, self.reader.shape["size"]) for file in files]
                root = path if path.is_dir() else path.parent
                names = [str(file.relative_to(root)) for file in files]
                yield names, self._run(self.reader(_set(np.stack(images))))
            return
        known = self.columns if columns is None else columns
        for cases in _batched(stream(path, known, labelled=False, together=True)):
            yield [case.name for case in cases], self.of_series([case.series for case in cases])

    @property
    def columns(self) -> Columns:
        """Of the tables that it was trained with."""
        return Columns() if self.layout is None else Columns.from_dict(self.layout)

    @property
    def layout(self) -> dict[str, Any] | None:
        """The columns as JSON has them, None where cases come in no tables."""
        stored: dict[str, Any] | None = getattr(self.reader, "columns", None)
        return stored

    @cached_property
    def longest(self) -> int:
        """Longer series are cut to it."""
        return int(self.reader.shape.get("max_length", 0))

    @torch.inference_mode()
    def _run(self, data: Examples) -> Tensor:
        device = next(self.module.parameters()).device
        found: Tensor | None = None
        for indices in similar_lengths(data.lengths.numpy(), TOKENS):
            batch = data.__getitems__(indices)
            part = self.module(batch.inputs.to(device), batch.padding.to(device)).float().cpu()
            found = part.new_empty(len(data), part.shape[1]) if found is None else found
            found[indices] = part
        if found is None:
            raise RunError("there are no cases; expected at least one")
        return found

    def _series(self, X: Any) -> list[Floats]:
        if is_collection(X):
            return read_collection(X)
        table = np.asarray(X)
        if table.ndim != 2:
            raise RunError(
                f"X has shape {table.shape}; expected (cases, channels, timepoints), or (cases, "
                "timepoints) of one channel"
            )
        return read_collection(table[:, None])


def load_run(run: Path | str) -> TrainedModel:
    """The model of a finished run, or of a folder that `primal export --format safetensors` wrote.

    Args:
        run: the folder.

    Example:
        model = pa.load_run("runs/uea-JapaneseVowels-primal+primal-001")
        model.predict(X)
    """
    path = Path(run)
    if not path.is_dir():
        raise RunError(f"{path} is not there; expected the folder of a finished run")
    place = path / ("run.json" if (path / "run.json").is_file() else "config.json")
    if not place.is_file():
        raise RunError(f"{path} has no config.json; expected the folder of a finished run")
    config = config_in(place)
    if isinstance(config, TableConfig):
        from .table import load_table

        return load_table(path, config)
    if not isinstance(config, RunConfig):
        raise RunError(f"{path} is a run of {config.task}; expected one of classes or numbers")
    weights = stored_weights(path)
    reader = _reader(path, config)
    try:
        with torch.random.fork_rng(devices=[]):  # its random weights are replaced at once
            module = get_task(config.task).model(config, reader.shape)
    except RunError:
        raise
    except UNBUILT as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise RunError(f"{path} is damaged: its model cannot be built: {reason}") from error
    load_weights(module, weights)
    return TrainedModel(path, config, reader, module.eval())


def stored_weights(path: Path) -> Path:
    """The file with the weights that count."""
    found = next((path / name for name in WEIGHTS if (path / name).is_file()), None)
    if found is None:
        raise RunError(f"{path} has no weights; expected {WEIGHTS[0]} of a run that is finished")
    return found


def _reader(path: Path, config: RunConfig) -> Any:
    """From reader.json; a run of an earlier version is asked for its data."""
    if (path / "reader.json").is_file():
        stored: Any = read_object(path / "reader.json")
    else:
        stored = load(config).reading()
    if stored is None or stored.get("reads") not in READERS:
        raise RunError(f"{path} is a run of {config.task}; expected one of series or images")
    try:
        return READERS[stored["reads"]].from_dict(stored)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise RunError(f"{path / 'reader.json'} is damaged: {error!r}") from error


def image_files(path: Path) -> list[Path]:
    """An image, or all images below a folder."""
    if path.is_file():
        return [path]
    found = [file for file in sorted(path.rglob("*")) if file.suffix.lower() in IMAGES]
    if not found:
        raise RunError(f"{path} has no images; expected {', '.join(IMAGES)} files")
    return found


def _images(X: Any, side: int) -> ImageSet:
    images = np.asarray(X)
    if images.shape[1:] != (side, side, 3) or images.dtype != np.uint8:
        raise RunError(
            f"X has shape {images.shape} of {images.dtype}; expected bytes (cases, {side}, {side}, "
            "3)"
        )
    return _set(images)


def _set(images: npt.NDArray[np.uint8]) -> ImageSet:
    labels = np.full(len(images), -1, dtype=np.int64)
    return ImageSet("X", images, labels, ())


def _batched(items: Iterable[Any]) -> Iterator[Sequence[Any]]:
    rest = iter(items)
    while batch := list(islice(rest, TOGETHER)):
        yield batch
