"""Models and batches from local files, for those who convert from the command line."""

from __future__ import annotations

import difflib
import pickle
import re
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..names import unknown
from ..runs.files import read_object
from .apply import convert_
from .distill import Distilled, distill_
from .folder import save
from .planning import Plan
from .pretrained import (
    expect_place,
    expect_unconverted,
    named_in_errors,
    require_transformers,
)

# of any library: whether transformers can read what is there, it says itself
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin*", "tf_model*.h5", "flax_model*.msgpack")
# what belongs to a model beside its weights: tokenizers, image processors, generation settings
_COMPANIONS = (
    "*token*",
    "vocab*",
    "merges.txt",
    "*processor*",
    "generation_config.json",
    "*.model",
)


def open_model(path: Path | str, class_name: str | None = None) -> tuple[nn.Module, bool]:
    """A Hugging Face model from a local folder or by a name of the hub, and whether it has trained
    weights. A config.json, or a folder without any weights, gives an untrained model. class_name: a
    class of transformers, by default the one that config.json names.
    """
    require_transformers()
    expect_place(path)
    if not Path(path).exists():
        return _from_hub(str(path), class_name), True
    path = Path(path)
    folder = path.parent if path.is_file() else path
    if not (folder / "config.json").is_file():
        raise ValueError(f"{path} has no config.json; expected a folder that save_pretrained wrote")
    config = _config(folder, class_name)
    expect_unconverted(config, folder)
    kind = _class_of(config, class_name)
    trained = path.is_dir() and any(file for pattern in _WEIGHTS for file in folder.glob(pattern))
    if not trained:
        auto = kind.__name__.startswith("Auto")
        with named_in_errors(folder / "config.json"):
            return (kind.from_config(config) if auto else kind(config)), False
    try:
        # weights_only: a .bin is a pickle, of which nothing but tensors may be read
        return kind.from_pretrained(folder, local_files_only=True, weights_only=True), True
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"the pytorch_model.bin in {folder} is a pickle of more than tensors, which can run "
            "any code; expected weights in .safetensors, as save_pretrained writes them"
        ) from error


def _config(folder: Path, class_name: str | None) -> Any:
    """The configuration; old ones do not say of which model they are, but a class does."""
    transformers = require_transformers()
    stored = read_object(folder / "config.json")
    known = getattr(getattr(transformers, class_name or "", None), "config_class", None)
    try:
        with named_in_errors(folder / "config.json"):
            return (known or transformers.AutoConfig).from_pretrained(folder, local_files_only=True)
    except ValueError as error:
        if "model_type" not in stored:
            raise ValueError(
                f"the config.json in {folder} names no model_type; expected one, or the class of "
                "the model (--class BertForMaskedLM)"
            ) from error
        raise


def _from_hub(name: str, class_name: str | None) -> Any:
    """A model of the hub, or of its cache on this machine."""
    transformers = require_transformers()
    try:
        config = transformers.AutoConfig.from_pretrained(name)
        expect_unconverted(config, name)
        return _class_of(config, class_name).from_pretrained(name, weights_only=True)
    except OSError as error:
        raise ValueError(
            f"{name} is no folder here, and the hub does not give it: {str(error).splitlines()[0]}"
        ) from error


def _class_of(config: Any, class_name: str | None) -> Any:
    transformers = require_transformers()
    name = class_name or next(iter(getattr(config, "architectures", None) or ()), "AutoModel")
    kind = getattr(transformers, name, None)
    if kind is None:
        near = difflib.get_close_matches(name, dir(transformers), n=5)
        raise ValueError(unknown("model class", name, ["AutoModel", *near]))
    return kind


def read_batches(path: Path | str, size: int) -> list[dict[str, Tensor]]:
    """Batches of keywords from a .npz or .safetensors file, whose arrays are named as the model's
    arguments (input_ids, attention_mask, pixel_values, ...) and have the samples first."""
    path = Path(path)
    arrays: dict[str, Any]
    if path.suffix == ".npz":
        from ..runs.arrays import read_arrays

        try:
            arrays = {name: torch.from_numpy(array) for name, array in read_arrays(path).items()}
        except (OSError, ValueError, TypeError) as error:
            raise ValueError(f"{path} cannot be read: {error}; expected arrays") from error
    elif path.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            arrays = load_file(path)
        except (OSError, SafetensorError) as error:
            raise ValueError(f"{path} cannot be read: {error}; expected arrays") from error
    else:
        raise ValueError(f"{path.name} is neither .npz nor .safetensors; expected one of the two")
    counts = {name: len(array) if array.dim() else 0 for name, array in arrays.items()}
    if not counts or len(set(counts.values())) > 1 or 0 in counts.values():
        raise ValueError(f"{path.name} holds {counts}; expected arrays with the same samples first")
    (samples,) = set(counts.values())
    return [
        {name: array[start : start + size] for name, array in arrays.items()}
        for start in range(0, samples, size)
    ]


def parse_layers(text: str) -> str | int | slice:
    """ "-1" is an index, "2:5" a slice; everything else a name or pattern, as `plan` takes it."""
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    if re.fullmatch(r"-?\d*:-?\d*", text):
        first, last = (int(part) if part else None for part in text.split(":"))
        return slice(first, last)
    return text


def write_converted(
    model: nn.Module,
    planned: Plan,
    source: Path,
    folder: Path,
    *,
    inputs: list[Any] | None = None,
    steps: int = 0,
) -> list[Distilled]:
    """Convert a model that was opened from `source`, distill it for so many steps with inputs, if
    there are any, and save it with its companions."""
    convert_(model, planned)
    rows = [] if inputs is None else distill_(model, inputs, steps=steps)
    save(model, folder)
    copy_companions(source, folder)
    return rows


def copy_companions(source: Path | str, folder: Path | str) -> list[str]:
    """Copy tokenizer, processor and generation settings of a model beside a converted one."""
    source = Path(source)
    source = source.parent if source.is_file() else source
    found = {path for pattern in _COMPANIONS for path in source.glob(pattern) if path.is_file()}
    for path in found:
        shutil.copyfile(path, Path(folder) / path.name)
    return sorted(path.name for path in found)
