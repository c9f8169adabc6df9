"""Converted models and Hugging Face's own `save_pretrained` and `from_pretrained`.

`model.save_pretrained(folder)` works as ever: the conversion stands in config.json. A plain class
would not know it, so

    model = primal_attention.from_pretrained(folder)

which is `pretrained_class(BertModel).from_pretrained(folder)` for the class that was saved. For
Auto classes see `publishing.py`.
"""

from __future__ import annotations

import functools
import re
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import nn

from ..adapters.converted import converted_layers, forget_originals
from ..runs.extras import needs_extra
from .apply import repeat
from .folder import CONFIG, RECORD
from .record import FIELD, check_layers, expect, note


def from_pretrained(
    name: Path | str, *, class_name: str | None = None, **options: Any
) -> nn.Module:
    """A model by a folder or by a name of the hub, in the class that it was saved from: converted,
    as `save_pretrained` or `primal_attention.save` wrote it, or a plain one.

    class_name: a class of transformers, by default the one that config.json names.

    Options are those of transformers' from_pretrained. The originals of a converted model are not
    in its folder: `revert_` will refuse.
    """
    if (Path(name) / RECORD).is_file():
        from .folder import load

        if class_name is not None:
            options = {"class_name": class_name, **options}
        if options:
            raise ValueError(
                f"{next(iter(options))} is given for a folder of primal_attention.save; expected "
                "no options"
            )
        return load(name)
    expect_place(name)
    transformers = require_transformers()
    known = getattr(getattr(transformers, class_name or "", None), "config_class", None)
    try:
        with named_in_errors(Path(name) / CONFIG):
            config = (known or transformers.AutoConfig).from_pretrained(name, **_place(name))
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{name} cannot be opened: {str(error).splitlines()[0]} Expected a folder or a name of "
            "the hub whose config.json names a model_type, or the class of the model "
            '(class_name="BertForMaskedLM")'
        ) from error
    names = getattr(config, "architectures", None) or ["AutoModel"]
    kind = getattr(transformers, str(class_name or names[0]), None)
    if kind is None:
        raise ValueError(
            f"{name} holds a {class_name or names[0]}; expected a class of transformers"
        )
    kind = pretrained_class(kind) if getattr(config, FIELD, None) else kind
    with named_in_errors(name):
        model: nn.Module = kind.from_pretrained(name, **{**_place(name), **options})
    return model


@contextmanager
def named_in_errors(place: Path | str) -> Iterator[None]:
    """What transformers makes of wrong values in a file is one sentence that names it."""
    try:
        yield
    except (OSError, ImportError):  # these say what they could not find
        raise
    except Exception as error:
        said = textwrap.shorten(str(error), 300)
        if isinstance(error, ValueError) and (str(place) in said or "model_type" in said):
            raise
        raise ValueError(f"{place} cannot be read: {type(error).__name__}: {said}") from error


def expect_place(name: Path | str) -> None:
    """Refuse what is no folder here and cannot be a name of the hub either."""
    if not Path(name).exists() and not re.fullmatch(r"\w[\w.-]*(/[\w.-]+)?", str(name)):
        raise ValueError(f"{name} does not exist; expected a folder of a model, or a hub name")


def opened(model: nn.Module | Path | str) -> nn.Module:
    """A model, where a folder or a name of the hub may be given for it."""
    return from_pretrained(model) if isinstance(model, str | Path) else model


def _place(name: Path | str) -> dict[str, bool]:
    """A folder is read as it is; any other name is one of the hub, or of its cache."""
    return {"local_files_only": True} if Path(name).exists() else {}


def converted_class(name: str) -> type[Any]:
    """`pretrained_class` of a class of transformers, for the module beside a saved model."""
    return pretrained_class(getattr(require_transformers(), name))


@functools.cache
def pretrained_class(kind: type[Any]) -> type[Any]:
    """A subclass of a Hugging Face model class that repeats the conversion of its config. That of a
    base model repeats what a model with a head had in its base."""

    def __init__(self: Any, config: Any, *args: Any, **kwargs: Any) -> None:
        kind.__init__(self, config, *args, **kwargs)
        known = getattr(config, FIELD, None)
        if known is None:
            raise ValueError(
                "the config tells of no conversion; expected that of a converted model"
            )
        if not converted_layers(self):
            place = Path(config.name_or_path) / CONFIG
            check_layers(place, expect(place, FIELD, known, dict).get("layers"))
            with named_in_errors(place):
                repeat(self, _own_layers(self, known["layers"]))
            forget_originals(self)
            note(self)

    def register_for_auto_class(cls: Any, auto_class: Any = "AutoModel") -> None:
        """Nothing: saving must not copy the library's own file, where the class says it is from."""

    # the old name: architectures in config.json and all else that goes by names stay as they are
    members = {
        "__init__": __init__, "__module__": kind.__module__, "__doc__": kind.__doc__,
        "register_for_auto_class": classmethod(register_for_auto_class),
    }  # fmt: skip
    return type(kind.__name__, (kind,), members)


def _own_layers(model: Any, layers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The layers of a record, by their paths in this model: a base has those below its prefix."""
    prefix = f"{model.base_model_prefix}."
    if hasattr(model, model.base_model_prefix):
        return layers
    own = []
    for layer in layers:
        names = [n.removeprefix(prefix) for n in layer["names"] if n.startswith(prefix)]
        own += [{**layer, "names": names}] if names else []
    return own or layers


# -- bases for `load` ------------------------------------------------------------------------------


def read_config(folder: Path | str, path: str) -> Any:
    """The config in a folder, for a model class of transformers."""
    try:
        kind = _model_class(path).config_class
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from error
    with named_in_errors(Path(folder) / CONFIG):
        return kind.from_pretrained(folder, **_place(folder))


def build_base(base: Any, path: str) -> Any:
    """An unconverted model of the class that was saved: as trained, from a local folder, or
    untrained, from a config."""
    if isinstance(base, str | Path):
        expect_place(base)
        expect_unconverted(read_config(base, path), base)
        with named_in_errors(base):
            return _model_class(path).from_pretrained(base, **_place(base))
    if not hasattr(base, "to_dict"):
        raise TypeError(f"base is a {type(base).__name__}; expected a model, a config or a folder")
    return _model_class(path)(base)


def expect_unconverted(config: Any, folder: Path | str) -> None:
    """Refuse a converted model's folder: a plain class would start its attentions at random."""
    if getattr(config, FIELD, None):
        ours = (Path(folder) / RECORD).is_file()
        opens = "primal_attention.load" if ours else "primal_attention.from_pretrained"
        raise ValueError(
            f"{folder} holds a model that is converted already, which {opens} opens; expected an "
            "unconverted one"
        )


def _model_class(path: str) -> Any:
    module, _, name = path.rpartition(".")
    kind = None
    if module.startswith("transformers."):
        require_transformers()
        with suppress(ImportError):
            kind = getattr(import_module(module), name, None)
    if kind is None:
        raise ValueError(f"the model is a {path}; expected base to be such a model")
    return kind


def require_transformers() -> Any:
    """The library, or one sentence that says how to get it."""
    with needs_extra("hf", "this model needs"):
        import transformers
    return transformers
