"""A module as a file for other programs, which can be called before the file counts."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...runs.errors import RunError
from ...runs.extras import needs_extra
from ...runs.files import explained, replacing

Inputs = tuple[Tensor, ...]


@contextmanager
def written(
    form: str, module: nn.Module, inputs: Inputs, sizes: tuple[dict[int, Any], ...], path: Path
) -> Iterator[Callable[..., Tensor]]:
    """A call of what stands in the new file, form "onnx" or "torch" (a program of torch.export);
    the file is at `path` when a `with` ends without an error. sizes: the dimensions of each input
    that may have any size."""
    with explained(f"write {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
    if form == "onnx":
        with needs_extra("export", "exports to ONNX need"):
            import onnxruntime
            import onnxscript  # noqa: F401
        with _quiet(), _refused(form):
            made = torch.onnx.export(
                module, inputs, dynamo=True, dynamic_shapes=sizes, verbose=False
            )
        with explained(f"write {path}"), replacing(path) as beside:
            made.save(str(beside))  # type: ignore[union-attr]
            yield _onnx(onnxruntime.InferenceSession(str(beside), providers=[PROVIDER]))
        return
    with _quiet(), _refused(form):
        exported = torch.export.export(module, inputs, dynamic_shapes=sizes)
    with explained(f"write {path}"), replacing(path) as beside:
        with open(beside, "wb") as file:
            torch.export.save(exported, file)
        with open(beside, "rb") as file:
            program = torch.export.load(file).module()
        yield program


PROVIDER = "CPUExecutionProvider"


def _onnx(session: Any) -> Callable[..., Tensor]:
    names = [given.name for given in session.get_inputs()]

    def call(*inputs: Tensor) -> Tensor:
        given = {name: x.numpy() for name, x in zip(names, inputs, strict=True)}
        return torch.from_numpy(session.run(None, given)[0])

    return call


@contextmanager
def _refused(form: str) -> Iterator[None]:
    """What torch cannot follow it says at length, in errors of many kinds."""
    try:
        yield
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        said = lines[0] if lines else type(error).__name__
        raise RunError(f"torch cannot export the model as {form}: {said}") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Exporters speak of their own internals."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
