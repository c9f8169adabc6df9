"""A fitted PrimalFormerClassifier or PrimalFormerRegressor as a folder."""

from __future__ import annotations

import dataclasses
import os
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from ...models.build import build_model
from ...names import check_choice
from ...tasks.series import Normaliser
from ..checkpoint import tensors_from_bytes
from ..config import CHOICES, RunConfig
from .ensemble import Ensemble
from .folder import (
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
from .grid import TimeGrid
from .parameters import plain
from .rocket.model import number_of_threads
from .rocket.saving import model_content, model_from, model_tensors
from .scaling import Squash
from .settings import Settings

if TYPE_CHECKING:
    from .former import FormerEstimator

Estimator = TypeVar("Estimator", bound="FormerEstimator")
LEFT_OUT = ("left_out_proba_", "left_out_")  # one or the other
VALUES = ("_centre", "_deviation")  # of the regressor's targets


def save(estimator: FormerEstimator, path: str | os.PathLike[str]) -> None:
    """Write an estimator; a saved one of its kind that is there already is replaced."""
    refuse_others(path, *_formats(type(estimator)))
    write_folder(path, _content(estimator), _tensors(estimator))


def load(kind: type[Estimator], path: str | os.PathLike[str]) -> Estimator:
    """The inverse of `save`; a RunError says what is wrong with the folder."""
    return read_folder(path, partial(_restore, kind), *_formats(kind))


def _formats(kind: type[FormerEstimator]) -> list[str]:
    """The newest first."""
    if hasattr(kind, "_restored"):
        return [f"primal_attention.PrimalFormerRegressor/{version}" for version in (3, 2, 1)]
    return [f"primal_attention.PrimalFormerClassifier/{version}" for version in (4, 3, 2, 1)]


def _content(estimator: FormerEstimator) -> dict[str, Any]:
    parameters = {name: plain(value) for name, value in estimator.get_params().items()}
    if isinstance(parameters["random_state"], np.random.RandomState):
        parameters["random_state"] = None
    if not isinstance(parameters["attention"], str):
        parameters["attention"] = [str(name) for name in parameters["attention"]]
    fitted = estimator.ensemble_
    classes = getattr(estimator, "classes_", None)
    return {
        "format": _formats(type(estimator))[0],
        "parameters": parameters,
        # what it was fitted with: the parameters may have been set anew since
        "run": fitted.config.to_dict(),
        "classes": None if classes is None else classes_to_json(classes),
        "values": [getattr(estimator, name) for name in VALUES if hasattr(estimator, name)],
        "channels": fitted.channels,
        "max_length": fitted.nets[0].max_length if fitted.nets else None,
        "squash": None if fitted.squash is None else fitted.squash.to_dict(),
        "normaliser": None if fitted.normaliser is None else fitted.normaliser.to_dict(),
        "nets": len(fitted.nets),
        "frozen": None if fitted.frozen is None else model_content(fitted.frozen),
        "temperature": fitted.temperature,
        "factors": list(fitted.factors),
        "share": fitted.share,
        "halves": fitted.halves,
        **columns_to_json(estimator),
        "grid": None if (grid := getattr(estimator, "grid_", None)) is None else grid.step,
        "history": estimator.history_,
        "steps": estimator.n_iter_,
    }


def _tensors(estimator: FormerEstimator) -> dict[str, Tensor]:
    fitted = estimator.ensemble_
    found = {
        f"net.{i}.{name}": tensor
        for i, net in enumerate(fitted.nets)
        for name, tensor in net.state_dict().items()
    }
    if fitted.frozen is not None:
        found |= {f"frozen.{name}": t for name, t in model_tensors(fitted.frozen).items()}
    for name in LEFT_OUT:
        if getattr(estimator, name, None) is not None:
            found[name] = torch.from_numpy(getattr(estimator, name))
    return found


def _restore(kind: type[Estimator], content: dict[str, Any], weights: bytes) -> Estimator:
    stored = tensors_from_bytes(weights)
    if "nets" not in content:
        content, stored = _from_version_1(content), _under("net.0.", stored)
    if "factors" not in content:  # version 2 mixed probabilities
        content["factors"] = [content["share"], 1.0 - content["share"]]
    content.setdefault("halves", True)  # the versions before the newest
    parameters = content["parameters"]
    if isinstance(parameters["attention"], list):
        parameters["attention"] = tuple(parameters["attention"])
    estimator: Any = kind(**parameters)
    check_choice("device", estimator.device, CHOICES["accelerator"])
    number_of_threads(estimator.n_jobs)
    run, classes = content["run"], content["classes"]
    config = _early(estimator) if run is None else RunConfig.from_dict(run)
    channels, outputs = content["channels"], 1
    if classes is not None:
        estimator.classes_ = classes_from_json(classes)
        outputs = len(estimator.classes_)
    nets = []
    for i in range(content["nets"]):
        shape = {"channels": channels, "max_length": content["max_length"]}
        net = build_model(config, classes=outputs, **shape)
        net.load_state_dict(_of(f"net.{i}.", stored))
        nets.append(net.eval())
    squash, normaliser, frozen = (content[name] for name in ("squash", "normaliser", "frozen"))
    if not nets and frozen is None:
        raise ValueError(f"there are {content['nets']} networks; expected some")
    first, second = content["factors"]
    estimator.ensemble_ = Ensemble(
        config,
        channels,
        None if squash is None else Squash.from_dict(squash, channels),
        None if normaliser is None else Normaliser.from_dict(normaliser, channels),
        tuple(nets),
        None if frozen is None else model_from(frozen, _of("frozen.", stored)),
        (finite(first), finite(second)),
        finite(content["temperature"]),
        None if content["share"] is None else finite(content["share"]),
        content["halves"],
    )
    left_out = LEFT_OUT[classes is None]
    setattr(estimator, left_out, stored[left_out].numpy() if left_out in stored else None)
    restore_values(estimator, VALUES, content["values"])
    columns_from_json(estimator, content)
    step = content.get("grid")
    estimator.grid_ = None if step is None else TimeGrid(finite(step))
    estimator.history_, estimator.n_iter_ = content["history"], content["steps"]
    found: Estimator = estimator
    return found


def _from_version_1(content: dict[str, Any]) -> dict[str, Any]:
    """One Transformer, trained with early stopping."""
    before = {"ensemble": "net", "feature_map": "cosine", "early_stopping": True}
    before |= {"networks": 1, "folds": 0}
    alone: dict[str, Any] = {
        "squash": None,
        "frozen": None,
        "temperature": 1.0,
        "factors": [1.0, 0.0],
        "share": None,
        "values": [],
    }
    return {
        "run": None,
        **content,
        **alone,
        "nets": 1,
        "steps": len(content["history"]),
        "parameters": before | content["parameters"],
    }


def _early(estimator: FormerEstimator) -> RunConfig:
    """The settings of a Transformer whose folder has the parameters alone."""
    config = Settings.of(estimator.get_params()).config
    return dataclasses.replace(config, model="transformer", norm="post")


def _of(prefix: str, stored: dict[str, Tensor]) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): t for n, t in stored.items() if n.startswith(prefix)}


def _under(prefix: str, stored: dict[str, Tensor]) -> dict[str, Tensor]:
    return {prefix + name: tensor for name, tensor in stored.items()}
