"""A converted model on disk: conversion.json and weights.safetensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..adapters.converted import converted_layers, forget_originals
from ..names import check_choice
from ..runs.extras import needs_extra
from ..runs.files import read_json, replacing, write_bytes, write_json
from .apply import repeat, swap
from .fingerprint import contents, split, structure, tensors
from .optimizers import exchange
from .record import check_layers, expect, layers_record, note
from .sites import expect_converted

FORMAT = 1
KEPT = ("all", "converted")  # whose weights a folder holds
RECORD, WEIGHTS, CONFIG = "conversion.json", "weights.safetensors", "config.json"


def save(
    model: nn.Module, folder: Path | str, *, weights: Literal["all", "converted"] = "all"
) -> Path:
    """Write a converted model into a folder; returns the folder.

    weights="all" saves every parameter. "converted" saves the converted layers only: small, but it
    can be loaded on a base with exactly the other parameters alone. A Hugging Face model also
    leaves its config.json, so that `load(folder)` needs no base.
    """
    check_choice("weights", weights, KEPT)
    expect_converted(model)
    from_safetensors = _safetensors()
    named = tensors(model)
    converted = layers_record(model)
    names = [name for layer in converted for name in layer["names"]]
    inside, outside = split(named, names)
    record = {
        "format": FORMAT,
        "model": f"{type(model).__module__}.{type(model).__qualname__}",
        "base": {
            "structure": structure(model, names),
            "contents": contents(outside) if weights == "converted" else None,
        },
        "weights": weights,
        "layers": converted,
    }
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / WEIGHTS) as path:
        from_safetensors.save_file(_apart(named if weights == "all" else inside), path)
    config: Any = getattr(model, "config", None)
    if hasattr(config, "to_json_string"):
        note(model)
        write_bytes(folder / CONFIG, config.to_json_string().encode())
    write_json(folder / RECORD, record)
    return folder


def load(folder: Path | str, base: Any = None) -> nn.Module:
    """The model of a folder that `save` wrote.

    base: the unconverted model, which is converted in place and returned; or a Hugging Face config,
    or a folder of `from_pretrained`; or None, if the folder has a config.json of its own. A base
    with another structure, or for weights="converted" with other numbers, is refused and left as
    it was. Only with a base model can `revert_` find the originals.
    """
    folder = Path(folder)
    record = _read(folder / RECORD)
    named = _weights(folder / WEIGHTS)
    complete = record["weights"] == "all"
    model = _base_model(folder, base, record, complete)
    if converted_layers(model):
        raise ValueError("the base is converted already; expected the unconverted model")
    names = [name for layer in record["layers"] for name in layer["names"]]
    if structure(model, names) != record["base"]["structure"]:
        raise ValueError(
            f"{folder}: {type(model).__name__} is another model than the one that was converted "
            f"({record['model']}): parameters have other names or shapes; expected the same base"
        )
    if complete and not isinstance(base, nn.Module):
        _adopt_types(model, named)
    try:
        moves = repeat(model, record["layers"])
    except (
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        RuntimeError,
        ArithmeticError,
    ) as error:
        raise ValueError(f"{folder / RECORD} is damaged: {error!r}") from error
    try:
        _fill(model, named, record)
    except BaseException:
        swap(model, [(names, new, old) for names, old, new in moves])
        raise
    exchange(model, moves)
    if not isinstance(base, nn.Module | str | Path):
        forget_originals(model)  # they were never trained: nothing to go back to
    note(model)
    return model


@torch.no_grad()
def _fill(model: nn.Module, named: dict[str, Tensor], record: dict[str, Any]) -> None:
    """Copy the weights; everything is checked before the first copy."""
    own = tensors(model)
    inside, outside = split(own, [n for layer in record["layers"] for n in layer["names"]])
    if record["weights"] == "converted":
        if contents(outside) != record["base"]["contents"]:
            raise ValueError(
                "the base has other numbers in its unconverted layers than the model that was "
                'saved with weights="converted"; expected exactly that base'
            )
        own = inside
    different = sorted(set(own) ^ set(named))
    if different:
        raise ValueError(
            f"{WEIGHTS} and the model differ in {different[0]}; expected the same names"
        )
    for name, tensor in named.items():
        if tensor.shape != own[name].shape:
            shapes = f"{tuple(tensor.shape)}; expected {tuple(own[name].shape)}"
            raise ValueError(f"{name} in {WEIGHTS} has shape {shapes}")
    for name, tensor in named.items():
        own[name].copy_(tensor)


def _apart(named: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors that share no memory, as safetensors wants them."""
    apart, seen = {}, set()
    for name, tensor in named.items():
        plain = tensor.detach().contiguous()
        place = plain.untyped_storage().data_ptr()
        apart[name] = plain.clone() if place in seen else plain
        seen.add(place)
    return apart


def _adopt_types(model: nn.Module, named: dict[str, Tensor]) -> None:
    """Give a model that was just built the types that were saved."""
    floating = [tensor.dtype for tensor in named.values() if tensor.is_floating_point()]
    model.to(max(set(floating), key=floating.count))
    for name, tensor in tensors(model).items():
        if name in named:
            tensor.data = tensor.data.to(named[name].dtype)


def _base_model(folder: Path, base: Any, record: dict[str, Any], complete: bool) -> nn.Module:
    if isinstance(base, nn.Module):
        return base
    from .pretrained import build_base, named_in_errors, read_config

    if not complete and not isinstance(base, str | Path):
        raise ValueError("the folder holds converted layers only; expected base to be a model")
    if base is None:
        if not (folder / CONFIG).exists():
            raise ValueError(f"{folder} has no {CONFIG}; expected base, the unconverted model")
        base = read_config(folder, record["model"])
        with named_in_errors(folder / CONFIG):
            return build_base(base, record["model"])  # type: ignore[no-any-return]
    return build_base(base, record["model"])  # type: ignore[no-any-return]


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ValueError(f"cannot read {path}; expected a folder that save wrote")
    record: dict[str, Any] = read_json(path)
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        have = record.get("format") if isinstance(record, dict) else None
        raise ValueError(f"{path} has format {have!r}; expected {FORMAT}")
    _check_record(path, record)
    return record


def _check_record(path: Path, record: Any) -> None:
    """Raise a ValueError unless a record has what `load` reads of it."""

    for name in ("weights", "model"):
        expect(path, name, record.get(name), str)
    if (kept := record["weights"]) not in KEPT:  # nobody would compare the base
        expected = f"expected one of {', '.join(KEPT)}"
        raise ValueError(f"{path} is damaged: weights is {kept!r}; {expected}")
    base = expect(path, "base", record.get("base"), dict)
    expect(path, "base.structure", base.get("structure"), str)
    check_layers(path, record.get("layers"))


def _weights(path: Path) -> dict[str, Tensor]:
    library = _safetensors()
    try:
        found: dict[str, Tensor] = library.load_file(path)
    except Exception as error:  # its own kind of error, or that of the system
        raise ValueError(f"cannot read {path}: {error}") from error
    return found


def _safetensors() -> Any:
    with needs_extra("train", "saving needs"):
        import safetensors.torch
    return safetensors.torch
