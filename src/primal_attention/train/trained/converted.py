"""A converted Hugging Face model as a file for other programs, compared with the model before it
counts as done: its named inputs in, its first output out (logits, or the last hidden states)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from ...convert import from_pretrained
from ...convert.examples import example_of
from ...convert.positions import positions_of
from ...convert.record import FIELD
from ...names import check_choice
from ...runs.errors import RunError
from ...runs.files import read_object
from .export import BATCHES, FILES, TOLERANCE, Exported
from .programs import Inputs, written

FORMATS = ("onnx", "torch")
LONGEST = 200  # positions that are compared, at most


def is_converted(folder: Path | str) -> bool:
    """Whether a folder holds a converted model of transformers."""
    config = Path(folder) / "config.json"
    return config.is_file() and FIELD in read_object(config)


def export_converted(folder: Path | str, form: str, out: Path | str | None = None) -> Exported:
    """Write a converted model, as `save_pretrained` or `primal adapt` left it, as ONNX or as a
    program of torch. A RunError if it does not compute the same; a file that was there before is
    then left as it was.

    Args:
        folder: of the converted model.
        form: "onnx" or "torch".
        out: the file; in the folder unless given.
    """
    check_choice("format", form, FORMATS)
    path = Path(folder) / FILES[form] if out is None else Path(out)
    named = Named(from_pretrained(folder)).eval()
    with written(form, named, named.inputs(2), named.sizes(), path) as program:
        return _compared(path, named, program)


class Named(nn.Module):
    """A model of transformers that is called with its inputs in order, and gives one tensor."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.example = example_of(model)
        self.names = list(self.example)
        if "input_ids" in self.names and "decoder_input_ids" not in self.names:
            self.names.append("attention_mask")
        stated = getattr(model.config, "max_position_embeddings", None)
        self.longest = min(positions_of(model) or stated or LONGEST, LONGEST)
        self.forward = self._named(self.forward)  # type: ignore[method-assign]

    def _named(self, call: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """Exporters take the names of a program's inputs from its signature."""
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD

        def forward(*inputs: Tensor) -> Tensor:
            return call(*inputs)

        parameters = [inspect.Parameter(name, kind) for name in self.names]
        forward.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return forward

    def forward(self, *inputs: Tensor) -> Tensor:
        given = dict(zip(self.names, inputs, strict=True))
        out = self.model(**given, return_dict=True, **self._without_cache())
        return next(each for each in out.values() if isinstance(each, Tensor))

    def _without_cache(self) -> dict[str, bool]:
        return {"use_cache": False} if getattr(self.model.config, "use_cache", None) else {}

    def inputs(self, batch: int, length: int = 8) -> Inputs:
        """Made up; of two sequences the second one is shorter."""
        made = []
        for name in self.names:
            if name == "attention_mask":
                mask = torch.ones(batch, length, dtype=torch.long)
                mask[1::2, length // 2 + 1 :] = 0
                made.append(mask)
                continue
            row = self.example[name]
            rows = row.expand(batch, *row.shape[1:])
            if name.endswith("input_ids"):
                rows = rows.repeat(1, -(-length // row.shape[1]))[:, :length]
            made.append(rows.clone())
        return tuple(made)

    def sizes(self) -> tuple[dict[int, Any], ...]:
        """What may have any size: batches, and the lengths of tokens."""
        batch, lengths = Dim("batch"), Dim("length", max=self.longest)
        further = Dim("decoder_length", max=self.longest)
        found = []
        for name in self.names:
            length = further if name.startswith("decoder") else lengths
            tokens = name.endswith("input_ids") or name == "attention_mask"
            found.append({0: batch, 1: length} if tokens else {0: batch})
        return tuple(found)

    @property
    def dynamic(self) -> tuple[str, ...]:
        tokens = any(name.endswith("input_ids") for name in self.names)
        return ("batch", "length") if tokens else ("batch",)


@torch.inference_mode()
def _compared(path: Path, named: Named, program: Callable[..., Tensor]) -> Exported:
    """On batches and lengths that the example did not have, where nothing is padded."""
    lengths = [3, named.longest] if "length" in named.dynamic else [8]
    most, count = 0.0, 0
    for batch in BATCHES:
        for length in lengths:
            inputs = named.inputs(batch, length)
            expected, found = named(*inputs), program(*inputs)
            if "attention_mask" in named.names and expected.shape[:2] == (batch, length):
                keep = inputs[-1].bool()
                expected, found = expected[keep], found[keep]
            scale = max(float(expected.abs().max()), 1.0)
            most = max(most, float((found - expected).abs().max()) / scale)
            count += 1
    if not most <= TOLERANCE:
        raise RunError(f"{path} differs from the model by {most:.2g}; expected {TOLERANCE:g}")
    return Exported(path, most, count, named.dynamic)
