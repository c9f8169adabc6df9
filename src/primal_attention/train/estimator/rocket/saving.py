"""A fitted estimator on the frozen bank as a folder: config.json and weights.safetensors."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from ....tasks.series import Normaliser
from ...checkpoint import tensors_from_bytes
from ..folder import (
    classes_from_json,
    classes_to_json,
    columns_from_json,
    columns_to_json,
    finite,
    read_folder,
    refuse_others,
    restore_values,
    write_folder,
)
from ..parameters import check_integer, plain
from .bank import Bank
from .features import Extractor
from .model import RocketModel, number_of_threads
from .ridge import Ridge

if TYPE_CHECKING:
    from .estimator import RocketEstimator

Estimator = TypeVar("Estimator", bound="RocketEstimator")
LEFT_OUT = ("left_out_proba_", "left_out_")  # one or the other
VALUES = ("_centre", "_deviation")  # of the regressor's targets


def save(estimator: RocketEstimator, path: str | os.PathLike[str]) -> None:
    """Write an estimator; a saved one of its kind that is there already is replaced."""
    refuse_others(path, _format(type(estimator)))
    write_folder(path, _content(estimator), _tensors(estimator))


def load(kind: type[Estimator], path: str | os.PathLike[str]) -> Estimator:
    """The inverse of `save`; a RunError says what is wrong with the folder."""
    return read_folder(path, partial(_restore, kind), _format(kind))


def _format(kind: type[RocketEstimator]) -> str:
    name = "Regressor" if hasattr(kind, "_restored") else "Classifier"
    return f"primal_attention.PrimalRocket{name}/1"


def _content(estimator: RocketEstimator) -> dict[str, Any]:
    parameters = {name: plain(value) for name, value in estimator.get_params().items()}
    if isinstance(parameters["random_state"], np.random.RandomState):
        parameters["random_state"] = None
    if not isinstance(parameters["parts"], str):
        parameters["parts"] = list(parameters["parts"])
    classes = getattr(estimator, "classes_", None)
    return {
        "format": _format(type(estimator)),
        "parameters": parameters,
        # what it was fitted with: the parameters may have been set anew since
        **model_content(estimator.model_),
        "classes": None if classes is None else classes_to_json(classes),
        "values": [getattr(estimator, name) for name in VALUES if hasattr(estimator, name)],
        **columns_to_json(estimator),
    }


def model_content(model: RocketModel) -> dict[str, Any]:
    """What of a model is not tensors."""
    extractor = model.extractor
    return {
        "parts": list(extractor.parts),
        "points": extractor.points,
        "max_positions": extractor.max_positions,
        "channels": extractor.bank.channels,
        "normaliser": extractor.normaliser.to_dict(),
        "alphas": {part: ridge.alpha for part, ridge in model.ridges.items()},
    }


def model_tensors(model: RocketModel) -> dict[str, Tensor]:
    """Its tensors; `model_from` is the inverse of both."""
    found = {f"bank.{name}": value for name, value in model.extractor.bank.tensors().items()}
    for part, ridge in model.ridges.items():
        found[f"{part}.weights"], found[f"{part}.intercept"] = ridge.weights, ridge.intercept
    found["weights"] = model.weights
    return found


def model_from(content: Mapping[str, Any], stored: Mapping[str, Tensor]) -> RocketModel:
    bank = {name.removeprefix("bank."): t for name, t in stored.items() if "bank." in name}
    for name in ("points", "max_positions"):
        check_integer(name, content[name], 1)
        np.int64(content[name])  # an ArithmeticError if it is beyond
    extractor = Extractor(
        Normaliser.from_dict(content["normaliser"], content["channels"]),
        Bank.from_tensors(content["channels"], bank),
        tuple(content["parts"]),
        content["points"],
        content["max_positions"],
    )
    ridges = {
        part: Ridge(stored[f"{part}.weights"], stored[f"{part}.intercept"], finite(alpha))
        for part, alpha in content["alphas"].items()
    }
    _check_widths(extractor, ridges)
    return RocketModel(extractor, ridges, stored["weights"])


def _tensors(estimator: RocketEstimator) -> dict[str, Tensor]:
    found = model_tensors(estimator.model_)
    for name in LEFT_OUT:
        if hasattr(estimator, name):
            found[name] = torch.from_numpy(getattr(estimator, name))
    return found


def _restore(kind: type[Estimator], content: dict[str, Any], weights: bytes) -> Estimator:
    parameters = content["parameters"]
    if isinstance(parameters["parts"], list):
        parameters["parts"] = tuple(parameters["parts"])
    estimator = kind(**parameters)
    number_of_threads(parameters.get("n_jobs"))
    stored = tensors_from_bytes(weights)
    estimator.model_ = model_from(content, stored)
    for name in LEFT_OUT:
        if name in stored:
            setattr(estimator, name, stored[name].numpy())
    if content["classes"] is not None:
        estimator.classes_ = classes_from_json(content["classes"])
    restore_values(estimator, VALUES, content["values"])
    columns_from_json(estimator, content)
    return estimator


def _check_widths(extractor: Extractor, ridges: dict[str, Ridge]) -> None:
    expected = sum(extractor.widths().values())
    found = sum(len(ridge.weights) for ridge in ridges.values())
    if found != expected or len(extractor.normaliser.mean) != extractor.bank.channels:
        raise ValueError(f"weights for {found} features; expected {expected}")
