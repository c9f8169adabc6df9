"""A fitted classifier as a folder: config.json and weights.safetensors, whole or not there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from torch import Tensor

from ...models.build import build_model
from ...runs.errors import RunError
from ...runs.files import explained, read_json, sync_folder, temporary, write_bytes, write_json
from ...tasks.series import Normaliser
from ..checkpoint import tensors_from_bytes, tensors_to_bytes
from ..config import RunConfig
from .settings import plain, run_config

if TYPE_CHECKING:
    from .classifier import PrimalFormerClassifier

FORMAT = "primal_attention.PrimalFormerClassifier/1"
CONFIG, WEIGHTS = "config.json", "weights.safetensors"
Estimator = TypeVar("Estimator")


def save(classifier: PrimalFormerClassifier, path: str | os.PathLike[str]) -> None:
    """Write a classifier; a saved one that is there already is replaced."""
    refuse_others(path, FORMAT)
    write_folder(path, _content(classifier), classifier.model_.state_dict())


def load(
    kind: type[PrimalFormerClassifier], path: str | os.PathLike[str]
) -> PrimalFormerClassifier:
    """The inverse of `save`; a RunError says what is wrong with the folder."""
    return read_folder(path, FORMAT, partial(_restore, kind))


# -- any estimator ---------------------------------------------------------------------------------


def refuse_others(path: str | os.PathLike[str], form: str) -> None:
    """Raise unless the path is new, an empty folder, or one that holds a saved `form` alone."""
    path = Path(path)
    if path.exists() and not (path.is_dir() and _is_ours_or_empty(path, form)):
        raise RunError(f"{path} exists and is no saved {_noun(form)}; expected a new folder")


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
    path: str | os.PathLike[str], form: str, restore: Callable[[dict[str, Any], bytes], Estimator]
) -> Estimator:
    """What `restore` makes of content and weights; a RunError says what is wrong with them."""
    path = Path(path)
    content = read_json(path / CONFIG)
    if not isinstance(content, dict) or content.get("format") != form:
        raise RunError(f"{path} is no saved {_noun(form)}; expected {CONFIG} with format {form!r}")
    with explained(f"read {path / WEIGHTS}"):
        weights = (path / WEIGHTS).read_bytes()
    try:
        return restore(content, weights)
    except (KeyError, TypeError, ValueError, RuntimeError, SafetensorError) as error:
        raise RunError(f"{path} is damaged: {_first_line(error)}") from error


def _noun(form: str) -> str:
    return "regressor" if "Regressor" in form else "classifier"


def _is_ours_or_empty(path: Path, form: str) -> bool:
    names = {file.name for file in path.iterdir()}
    if not names <= {CONFIG, WEIGHTS}:  # what else is there would be lost
        return False
    if not names:
        return True
    try:
        content = read_json(path / CONFIG)
    except RunError:
        return False
    return isinstance(content, dict) and content.get("format") == form


def _content(classifier: PrimalFormerClassifier) -> dict[str, Any]:
    parameters = {name: plain(value) for name, value in classifier.get_params().items()}
    if isinstance(parameters["random_state"], np.random.RandomState):
        parameters["random_state"] = None
    if not isinstance(parameters["attention"], str):
        parameters["attention"] = [str(name) for name in parameters["attention"]]
    normaliser, names = classifier.normaliser_, getattr(classifier, "feature_names_in_", None)
    return {
        "format": FORMAT,
        "parameters": parameters,
        # what it was fitted with: the parameters may have been set anew since
        "run": classifier._config.to_dict(),
        "classes": classes_to_json(classifier.classes_),
        "channels": classifier.model_.channels,
        "max_length": classifier.model_.max_length,
        "normaliser": None if normaliser is None else normaliser.to_dict(),
        "table": classifier._from_table,
        "features": classifier.n_features_in_,
        "feature_names": None if names is None else names.tolist(),
        "history": classifier.history_,
    }


def _restore(
    kind: type[PrimalFormerClassifier], content: dict[str, Any], weights: bytes
) -> PrimalFormerClassifier:
    parameters = content["parameters"]
    if isinstance(parameters["attention"], list):
        parameters["attention"] = tuple(parameters["attention"])
    parameters.setdefault("feature_map", "cosine")  # all that an earlier version had
    classifier = kind(**parameters)
    # a folder of an earlier version has the parameters alone
    run = content.get("run")
    config = run_config(classifier.get_params()) if run is None else RunConfig.from_dict(run)
    classifier._config = config
    classifier.classes_ = classes_from_json(content["classes"])
    model = build_model(
        config,
        classes=len(classifier.classes_),
        channels=content["channels"],
        max_length=content["max_length"],
    )
    model.load_state_dict(tensors_from_bytes(weights))
    classifier.model_ = model.eval()
    stored = content["normaliser"]
    classifier.normaliser_ = None if stored is None else Normaliser.from_dict(stored)
    classifier._from_table, classifier.n_features_in_ = content["table"], content["features"]
    if content["feature_names"] is not None:
        classifier.feature_names_in_ = np.array(content["feature_names"], dtype=object)
    classifier.history_ = content["history"]
    classifier.n_iter_ = len(classifier.history_)
    return classifier


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


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return f"no {text}" if isinstance(error, KeyError) else text.splitlines()[0]
