"""What was converted, in a form for JSON, and in the configuration of a Hugging Face model."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from torch import nn

from ..adapters.converted import converted_layers
from .sites import paths

FIELD = "primal_attention"  # of a Hugging Face config, so that config.json tells of the conversion


def layers_record(model: nn.Module) -> list[dict[str, Any]]:
    """[{"names": [...], "adapter": ..., "settings": {...}}, ...] of the converted layers."""
    return [
        {
            "names": list(paths(model, layer)),
            "adapter": layer.conversion.adapter,
            "settings": dict(layer.conversion.settings),
        }
        for layer in converted_layers(model)
    ]


def expect(path: Path, place: str, found: Any, kind: type) -> Any:
    """What was found at a place of a file, if it is of that kind."""
    if not isinstance(found, kind):
        raise ValueError(f"{path} is damaged: {place} is {found!r}; expected a {kind.__name__}")
    return found


def check_layers(path: Path, layers: Any) -> None:
    """Raise a ValueError unless the layers of a record are of the kinds that are read of them."""
    for i, layer in enumerate(expect(path, "layers", layers, list)):
        expect(path, f"layers[{i}]", layer, dict)
        for word in expect(path, f"layers[{i}].names", layer.get("names"), list):
            expect(path, f"layers[{i}].names", word, str)


def note(model: nn.Module) -> None:
    """Write the conversion into the model's config, if it has one of Hugging Face's kind."""
    config = getattr(model, "config", None)
    if not (hasattr(config, "to_dict") and hasattr(config, "save_pretrained")):
        return
    if not hasattr(config, FIELD):  # other models may have been built from the same object
        config = _own_config(model, config)
    setattr(config, FIELD, {"layers": layers_record(model)})


def forget(model: nn.Module) -> None:
    """Remove that entry."""
    config = getattr(model, "config", None)
    if config is not None and hasattr(config, FIELD):
        delattr(config, FIELD)


def _own_config(model: nn.Module, shared: Any) -> Any:
    """A copy of a config for this model and the originals of its layers."""
    own = copy.deepcopy(shared)
    originals = (layer.conversion.original for layer in converted_layers(model))
    for part in (model, *(original for original in originals if original is not None)):
        for module in part.modules():
            if getattr(module, "config", None) is shared:
                module.config = own
    return own
