"""Checkpoints: the state of a run in a folder of safetensors and JSON, whole or not there.

`checkpoints/step-00000123/` holds weights.safetensors, optimizer.safetensors (tensors named
`<parameter>/<key>`), perhaps best.safetensors, and state.json, which also has the size and checksum
of the others.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..runs.errors import RunError
from ..runs.files import explained, remove_temporary, sync_folder, temporary, write_bytes

KEEP = 2


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint holds; `state` is any JSON value. `best` are the weights of the best epoch
    so far, if they are kept."""

    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    scalars: dict[str, Any]  # what the optimiser has beside tensors
    state: dict[str, Any]
    best: dict[str, Tensor] = field(default_factory=dict)


def save(folder: Path, step: int, checkpoint: Checkpoint) -> None:
    """Write the checkpoint of a step and remove those before the last two.

    A full disk leaves the checkpoints before it as they were.
    """
    path = folder / _name(step)
    if path.exists():  # resumed and stopped again before the next step
        return
    with explained(f"save {path}", "; the checkpoints before it are intact"):
        folder.mkdir(exist_ok=True)
        beside = temporary(path)
        try:
            beside.mkdir()
            files = {}
            for name in ("weights", "optimizer", *(["best"] if checkpoint.best else [])):
                data = tensors_to_bytes(getattr(checkpoint, name))
                write_bytes(beside / f"{name}.safetensors", data)
                files[f"{name}.safetensors"] = _facts(data)
            state = {"state": checkpoint.state, "optimizer": checkpoint.scalars, "files": files}
            write_bytes(beside / "state.json", json.dumps(state, allow_nan=False).encode())
            sync_folder(beside)
            os.rename(beside, path)
            sync_folder(folder)
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise
    for old in _all(folder)[:-KEEP]:
        shutil.rmtree(old, ignore_errors=True)


def load_latest(folder: Path) -> Checkpoint | None:
    """The newest checkpoint that is whole."""
    if not folder.exists():
        return None
    for path in reversed(_all(folder)):
        with explained(f"read {path}"):
            try:
                return _load(path)
            except FileNotFoundError:
                continue
            except OSError:
                raise
            except Exception:  # whatever is wrong with it: the one before may be whole
                continue
    return None


def clean(folder: Path, step: int) -> None:
    """Remove what was left half written, and the checkpoints after a step."""
    remove_temporary(folder)
    for path in _all(folder):
        if path.name > _name(step):
            shutil.rmtree(path, ignore_errors=True)


def _name(step: int) -> str:
    return f"step-{step:08d}"


def _all(folder: Path) -> list[Path]:
    with explained(f"read {folder}"):  # it may be moved while it is looked through
        return sorted(folder.glob("step-*"))


def _load(path: Path) -> Checkpoint:
    content = json.loads((path / "state.json").read_bytes())
    tensors = {}
    for name, facts in content["files"].items():
        data = (path / name).read_bytes()
        if facts != _facts(data):
            raise ValueError(f"{path / name} is damaged")
        tensors[name.removesuffix(".safetensors")] = tensors_from_bytes(data)
    return Checkpoint(**tensors, scalars=content["optimizer"], state=content["state"])


def _facts(data: bytes) -> dict[str, int]:
    return {"bytes": len(data), "crc32": zlib.crc32(data)}


def tensors_to_bytes(
    tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None
) -> bytes:
    """As a safetensors file. Not by its own save_file, whose errors are not OSErrors."""
    from safetensors.torch import save

    return save({k: t.detach().cpu().contiguous() for k, t in tensors.items()}, metadata)


def tensors_from_bytes(data: bytes) -> dict[str, Tensor]:
    from safetensors.torch import load

    # in memory of their own: what aligned memory computes may differ in the last bit
    return {name: tensor.clone() for name, tensor in load(data).items()}


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file; a RunError says what is wrong with it."""
    from safetensors import SafetensorError

    with explained(f"read {path}"):
        stored = path.read_bytes()
    try:
        return tensors_from_bytes(stored)
    except SafetensorError as error:
        raise RunError(f"{path} is damaged: {str(error).splitlines()[0]}") from error


def load_weights(model: nn.Module, path: Path) -> None:
    """Give a model the weights of a safetensors file; a RunError says what is wrong with it."""
    weights = read_tensors(path)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise RunError(f"{path} is damaged: {str(error).splitlines()[0]}") from error


# -- the optimiser, by the names of the parameters ------------------------------------------------


def optimizer_state(
    model: nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors `<parameter>/<key>`, and what can be JSON: numbers by parameter and the groups."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, dict[str, Any]] = {}
    for parameter, state in optimizer.state.items():
        name = names[id(parameter)]
        for key, value in state.items():
            if isinstance(value, Tensor):
                tensors[f"{name}/{key}"] = value
            else:
                numbers.setdefault(name, {})[key] = value
    groups = [
        {**group, "params": [names[id(p)] for p in group["params"]]}
        for group in optimizer.param_groups
    ]
    return tensors, {"numbers": numbers, "groups": groups}


def load_optimizer_state(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    tensors: Mapping[str, Tensor],
    scalars: Mapping[str, Any],
) -> None:
    """The inverse of `optimizer_state`, to the last bit."""
    parameters = dict(model.named_parameters())
    # The groups' values come from the same configuration; only what the run changes is set.
    for group, saved in zip(optimizer.param_groups, scalars["groups"], strict=True):
        if [id(p) for p in group["params"]] != [id(parameters[n]) for n in saved["params"]]:
            raise ValueError("the checkpoint's optimiser has other parameters than the model")
        group["lr"] = saved["lr"]
    optimizer.state.clear()
    for full, tensor in tensors.items():
        name, key = full.rsplit("/", 1)
        parameter = parameters[name]
        # counters stay where the optimiser keeps them, on the CPU unless it is fused on a device
        on_device = key != "step" or optimizer.param_groups[0].get("fused")
        optimizer.state[parameter][key] = tensor.to(parameter.device) if on_device else tensor
    for name, values in scalars["numbers"].items():
        optimizer.state[parameters[name]].update(values)
