"""Converted models and Hugging Face's own `save_pretrained` and `from_pretrained`.

`model.save_pretrained(folder)` works as ever: the conversion stands in config.json. A plain class
would not know it, so

    model = primal_attention.convert.from_pretrained(folder)

which is `pretrained_class(BertModel).from_pretrained(folder)` for the class that was saved.
"""

from __future__ import annotations

import functools
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import nn

from ..adapters.converted import converted_layers, forget_originals
from ..runs.extras import needs_extra
from .apply import repeat
from .folder import RECORD
from .record import FIELD, note


def from_pretrained(folder: Path | str, **options: Any) -> nn.Module:
    """A converted model that `save_pretrained` wrote, from a local folder. Options are those of
    transformers' from_pretrained. The originals are not in the folder: `revert_` will refuse."""
    transformers = require_transformers()
    config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    names = getattr(config, "architectures", None)
    if not getattr(config, FIELD, None) or not names:
        raise ValueError(
            f"the config.json in {folder} tells of no conversion; expected a converted model"
        )
    built = pretrained_class(getattr(transformers, names[0]))
    return built.from_pretrained(folder, local_files_only=True, **options)  # type: ignore[no-any-return]


@functools.cache
def pretrained_class(kind: type[Any]) -> type[Any]:
    """A subclass of a Hugging Face model class that repeats the conversion of its config."""

    def __init__(self: Any, config: Any, *args: Any, **kwargs: Any) -> None:
        kind.__init__(self, config, *args, **kwargs)
        known = getattr(config, FIELD, None)
        if known is None:
            raise ValueError(
                "the config tells of no conversion; expected that of a converted model"
            )
        if not converted_layers(self):
            repeat(self, known["layers"])
            forget_originals(self)
            note(self)

    # the old name: architectures in config.json and all else that goes by names stay as they are
    members = {"__init__": __init__, "__module__": kind.__module__, "__doc__": kind.__doc__}
    return type(kind.__name__, (kind,), members)


# -- bases for `load` ------------------------------------------------------------------------------


def read_config(folder: Path | str, path: str) -> Any:
    """The config in a folder, for a model class of transformers."""
    return _model_class(path).config_class.from_pretrained(folder, local_files_only=True)


def build_base(base: Any, path: str) -> Any:
    """An unconverted model of the class that was saved: as trained, from a local folder, or
    untrained, from a config."""
    if isinstance(base, str | Path):
        expect_unconverted(read_config(base, path), base)
        return _model_class(path).from_pretrained(base, local_files_only=True)
    if not hasattr(base, "to_dict"):
        raise TypeError(f"base is a {type(base).__name__}; expected a model, a config or a folder")
    return _model_class(path)(base)


def expect_unconverted(config: Any, folder: Path | str) -> None:
    """Refuse a converted model's folder: a plain class would start its attentions at random."""
    if getattr(config, FIELD, None):
        ours = (Path(folder) / RECORD).is_file()
        opens = "primal_attention.load" if ours else "primal_attention.convert.from_pretrained"
        raise ValueError(
            f"{folder} holds a model that is converted already, which {opens} opens; expected an "
            "unconverted one"
        )


def _model_class(path: str) -> Any:
    module, _, name = path.rpartition(".")
    if not module.startswith("transformers."):
        raise ValueError(f"the model is a {path}; expected base to be such a model")
    require_transformers()
    return getattr(import_module(module), name)


def require_transformers() -> Any:
    """The library, or one sentence that says how to get it."""
    with needs_extra("hf", "this model needs"):
        import transformers
    return transformers
