"""What all estimators share: a fitted one is a folder of JSON and safetensors, without pickle."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ..checkpoint import tensors_from_bytes
from .folder import classes_from_json, classes_to_json, read_folder, refuse_others, write_folder
from .parameters import check_integer, plain


class SavedEstimator(BaseEstimator):  # type: ignore[misc]
    """Saves and loads its parameters, the form of X, the classes, and what a subclass adds: what
    JSON can hold (`_content`) and tensors (`_tensors`), which `_restore` takes back."""

    version = 1
    n_features_in_: int

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator as a folder of JSON and safetensors.

        One that was saved there before is replaced, unless there are other files with it. A
        RandomState is saved as None.
        """
        check_is_fitted(self)
        form = self._form()
        refuse_others(path, form)
        names = getattr(self, "feature_names_in_", None)
        classes = getattr(self, "classes_", None)
        content = {
            "format": form,
            "parameters": {n: _storable(v) for n, v in self.get_params(deep=False).items()},
            "features": getattr(self, "n_features_in_", None),
            "feature_names": None if names is None else names.tolist(),
            "classes": None if classes is None else classes_to_json(classes),
            **self._content(),
        }
        write_folder(path, content, self._tensors())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The estimator in a folder; its predictions are those of the saved one to the last bit
        on the same machine. A RunError says what is wrong with a folder."""

        def restore(content: dict[str, Any], weights: bytes) -> Any:
            estimator = cls(**content["parameters"])
            if content["features"] is not None:
                check_integer("features", content["features"], 1)
                estimator.n_features_in_ = content["features"]
            if content["feature_names"] is not None:
                estimator.feature_names_in_ = np.array(content["feature_names"], dtype=object)
            if content["classes"] is not None:
                estimator.classes_ = classes_from_json(content["classes"])
            estimator._restore(content, tensors_from_bytes(weights))
            return estimator

        loaded: Self = read_folder(path, restore, cls._form())
        return loaded

    @classmethod
    def _form(cls) -> str:
        return f"primal_attention.{cls.__name__}/{cls.version}"

    def _content(self) -> dict[str, Any]:
        """What was fitted, for JSON."""
        raise NotImplementedError(f"{type(self).__name__} does not define _content")

    def _tensors(self) -> Mapping[str, Tensor]:
        """What was fitted, as tensors."""
        raise NotImplementedError(f"{type(self).__name__} does not define _tensors")

    def _restore(self, content: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """The inverse of both."""
        raise NotImplementedError(f"{type(self).__name__} does not define _restore")


def prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def without_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Those under a prefix, without it."""
    begin = f"{prefix}."
    return {n.removeprefix(begin): t for n, t in tensors.items() if n.startswith(begin)}


def _storable(value: Any) -> Any:
    if isinstance(value, np.random.RandomState):
        return None
    if isinstance(value, list | tuple):
        return [_storable(one) for one in value]
    return plain(value)
