"""A trained run as a file for other programs, compared with the run before it counts as done.

onnx         model.onnx for any ONNX runtime: raw values in, probabilities or numbers out
torch        model.pt2, a program of torch.export that needs torch alone
safetensors  a folder in the format of the Hugging Face Hub, which `load_run` opens
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import Dim

from ...names import check_choice
from ...runs.errors import RunError
from ...runs.files import explained
from .deployed import Deployed
from .hub import save_folder
from .model import TrainedModel, load_run
from .programs import Inputs, written
from .table import TrainedTable, example_rows, load_table

FORMATS = ("onnx", "torch", "safetensors")
FILES = {"onnx": "model.onnx", "torch": "model.pt2", "safetensors": "hub"}
TOLERANCE = 1e-4  # of probabilities, and of numbers relative to the greatest
BATCHES = (1, 3, 8)  # that are compared


@dataclass(frozen=True)
class Exported:
    """What was written, and how far it is from the run on the inputs that were compared."""

    path: Path
    difference: float
    compared: int  # batches
    dynamic: tuple[str, ...]  # what may have any size


def export_run(run: Path | str, form: str, out: Path | str | None = None) -> Exported:
    """Write a run in another format. A RunError if it does not compute the same; a file that was
    there before is then left as it was.

    Args:
        run: the folder of a finished run.
        form: "onnx", "torch" or "safetensors".
        out: the file, or for "safetensors" the folder; in the run's folder unless given.
    """
    check_choice("format", form, FORMATS)
    model = load_run(run)
    path = Path(run) / FILES[form] if out is None else Path(out)
    if isinstance(model, TrainedTable):
        return _table(model, form, path)
    deployed = Deployed(model).eval()
    if form == "safetensors":
        with explained(f"write {path}"):
            path.parent.mkdir(parents=True, exist_ok=True)
        save_folder(model, path)
        again = Deployed(load_run(path)).eval()
        return _compared(path, model, deployed, again, ("batch", "length"))
    with written(form, deployed, example(model), _dynamic(model), path) as program:
        return _compared(path, model, deployed, program, _sizes(model))


def _table(model: TrainedTable, form: str, path: Path) -> Exported:
    """A folder alone: a row with categories is no tensor, and what is known grows by `absorb`."""
    if form != "safetensors":
        raise RunError(
            f"{model.path} is a run of a table, whose rows are no tensors; expected --format "
            "safetensors, a folder that `load_run` opens"
        )
    with explained(f"write {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
    save_folder(model, path)
    again, most = load_table(path, model.config), 0.0
    for rows in BATCHES:
        inputs = example_rows(model, rows)
        found, expected = (one.answer(*inputs) for one in (again, model))
        most = max(most, float((found - expected).abs().max()))
    if not most <= TOLERANCE:
        raise RunError(f"{path} differs from {model.path} by {most:.2g}; expected {TOLERANCE:g}")
    return Exported(path, most, len(BATCHES), ("batch",))


def example(model: TrainedModel, batch: int = 2, length: int | None = None) -> Inputs:
    """Raw inputs as the model has seen them; the second series is shorter."""
    generator = torch.Generator().manual_seed(batch)
    deployed = Deployed(model)
    shape = model.reader.shape
    if model.reads_images:
        size = shape["size"]
        return (255 * torch.rand(batch, 3, size, size, generator=generator),)
    length = min(model.longest, 16) if length is None else length
    x = torch.randn(batch, length, shape["channels"], generator=generator)
    padding = torch.zeros(batch, length, dtype=torch.bool)
    padding[1::2, length // 2 + 1 :] = True
    return x * deployed.deviation + deployed.mean, padding


def _dynamic(model: TrainedModel) -> tuple[dict[int, Any], ...]:
    batch = Dim("batch")
    if model.reads_images:
        return ({0: batch},)
    length = Dim("length", max=model.longest) if model.longest > 2 else None
    sizes = {0: batch} if length is None else {0: batch, 1: length}
    return sizes, sizes


def _sizes(model: TrainedModel) -> tuple[str, ...]:
    return tuple("batch" if i == 0 else "length" for i in _dynamic(model)[0])


@torch.inference_mode()
def _compared(
    path: Path,
    model: TrainedModel,
    original: Deployed,
    exported: Callable[..., Tensor],
    dynamic: tuple[str, ...],
) -> Exported:
    """Compare on batches and lengths that the example did not have."""
    lengths: list[int | None] = [None]
    if not model.reads_images and "length" in dynamic:
        lengths = [1, *sorted({max(model.longest // 3, 1), model.longest})]
    most, count = 0.0, 0
    for batch in BATCHES:
        for length in lengths:
            inputs = example(model, batch, length)
            expected, found = original(*inputs), exported(*inputs)
            scale = max(float(expected.abs().max()), 1.0)
            most = max(most, float((found - expected).abs().max()) / scale)
            count += 1
    if not most <= TOLERANCE:
        raise RunError(f"{path} differs from {model.path} by {most:.2g}; expected {TOLERANCE:g}")
    return Exported(path, most, count, dynamic)
