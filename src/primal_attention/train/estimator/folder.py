"""A fitted estimator as a folder: config.json and weights.safetensors, whole or not there."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from torch import Tensor

from ...runs.errors import RunError
from ...runs.files import explained, read_json, sync_folder, temporary, write_bytes, write_json
from ..checkpoint import tensors_to_bytes
from .parameters import check_integer

CONFIG, WEIGHTS = "config.json", "weights.safetensors"
Estimator = TypeVar("Estimator")


def refuse_others(path: str | os.PathLike[str], *forms: str) -> None:
    """Raise unless the path is new, an empty folder, or one that holds a saved one of the forms."""
    path = Path(path)
    if path.exists() and not (path.is_dir() and _is_ours_or_empty(path, forms)):
        raise RunError(f"{path} exists and is no saved {_noun(forms[0])}; expected a new folder")


def write_folder(
    path: str | os.PathLike[str], content: dict[str, Any], tensors: Mapping[str, Tensor]
) -> None:
    """Write beside and rename, so that the folder is whole or not there."""
    path = Path(path)
    weights = tensors_to_bytes(tensors)
    with explained(f"save {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        beside, before = temporary(path), temporary(path)
        try:
            beside.mkdir()
            write_bytes(beside / WEIGHTS, weights)
            write_json(beside / CONFIG, content)
            sync_folder(beside)
            if path.exists():
                os.rename(path, before)
            os.rename(beside, path)
            sync_folder(path.parent)
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            if before.exists() and not path.exists():
                os.rename(before, path)
            raise
        shutil.rmtree(before, ignore_errors=True)


def read_folder(
    path: str | os.PathLike[str],
    restore: Callable[[dict[str, Any], bytes], Estimator],
    *forms: str,
) -> Estimator:
    """What `restore` makes of content and weights of one of the forms, the newest first; a RunError
    says what is wrong with them."""
    path = Path(path)
    content = read_json(path / CONFIG)
    if not isinstance(content, dict) or content.get("format") not in forms:
        raise RunError(
            f"{path} is no saved {_noun(forms[0])}; expected {CONFIG} with format {forms[0]!r}"
        )
    with explained(f"read {path / WEIGHTS}"):
        weights = (path / WEIGHTS).read_bytes()
    try:
        with torch.random.fork_rng(devices=[]):  # a network is made before it gets its weights
            return restore(content, weights)
    except (
        LookupError, TypeError, ValueError, RuntimeError, AttributeError, ArithmeticError,
        MemoryError, SafetensorError,
    ) as error:  # fmt: skip
        raise RunError(f"{path} is damaged: {_first_line(error)}") from error


def _noun(form: str) -> str:
    return "regressor" if "Regressor" in form else "classifier"


def _is_ours_or_empty(path: Path, forms: tuple[str, ...]) -> bool:
    names = {file.name for file in path.iterdir()}
    if not names <= {CONFIG, WEIGHTS}:  # what else is there would be lost
        return False
    if not names:
        return True
    try:
        content = read_json(path / CONFIG)
    except RunError:
        return False
    return isinstance(content, dict) and content.get("format") in forms


def columns_to_json(estimator: Any) -> dict[str, Any]:
    """What the estimator knows of the form of X."""
    names = getattr(estimator, "feature_names_in_", None)
    return {
        "table": estimator._from_table,
        "features": estimator.n_features_in_,
        "feature_names": None if names is None else names.tolist(),
    }


def columns_from_json(estimator: Any, content: Mapping[str, Any]) -> None:
    check_integer("features", content["features"], 1)
    estimator._from_table, estimator.n_features_in_ = content["table"], content["features"]
    if content["feature_names"] is not None:
        estimator.feature_names_in_ = np.array(content["feature_names"], dtype=object)


def classes_to_json(classes: npt.NDArray[Any]) -> dict[str, Any]:
    values, kind = classes.tolist(), classes.dtype.kind
    wrong = [type(v).__name__ for v in values if type(v) not in (str, int, float, bool)]
    if kind not in "biufUO":  # tolist() turns a time into an integer
        wrong = [str(classes.dtype)]
    if wrong:
        raise RunError(
            f"the classes are of type {wrong[0]}; expected text, numbers or booleans, which JSON "
            "can hold"
        )
    return {"dtype": "object" if kind == "O" else classes.dtype.str, "values": values}


def classes_from_json(stored: dict[str, Any]) -> npt.NDArray[Any]:
    return np.array(stored["values"], dtype=np.dtype(stored["dtype"]))


def finite(value: Any) -> float:
    """A number from JSON, which may be anything."""
    if not math.isfinite(found := float(value)):
        raise ValueError(f"found {value}; expected a finite number")
    return found


def restore_values(estimator: Any, names: Sequence[str], values: Sequence[Any]) -> None:
    """Of a regressor's targets; a classifier has none."""
    for name, value in zip(names, values, strict=not hasattr(estimator, "classes_")):
        setattr(estimator, name, finite(value))


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return f"no {text}" if isinstance(error, KeyError) else text.splitlines()[0]
