"""Finding the attentions of a model and choosing among them."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from torch import nn

from ..adapters.base import Adapter, HeadsSource, Source, class_path, known_adapters
from ..adapters.converted import Converted, converted_layers

Layers = str | int | range | slice | re.Pattern[str] | Callable[[str, nn.Module], bool]

MOST_NAMED = 6  # attentions in a message
_LOOKS = re.compile(r"(?i)att(e)?n")  # names of classes that may be attentions
_WRAPPERS = (
    "DistributedDataParallel",
    "DataParallel",
    "FullyShardedDataParallel",
    "OptimizedModule",
)


@dataclass(frozen=True, eq=False)
class Site:
    """An attention in a model. A module that is used in several places is one site."""

    names: tuple[str, ...]  # all paths to it, as in model.named_modules()
    module: nn.Module
    parent: nn.Module  # of the first path
    adapter: Adapter
    cross: bool
    num_heads: int | None  # None: it cannot be converted

    @property
    def name(self) -> str:
        return self.names[0]

    def read(self) -> Source | HeadsSource:
        """What the attention computes; an error that names it where it cannot be converted."""
        try:
            source = self.adapter.read(self.module, self.parent)
        except ValueError as error:
            raise ValueError(f"{self.name} cannot be converted: {error}") from error
        if source is None:
            raise ValueError(
                f"{self.name} is not known to the adapter {self.adapter.name!r} any more"
            )
        return source


def check_model(model: nn.Module) -> None:
    """Refuse what is no module, and a wrapped model: the wrapper keeps references to the parameters
    that would go."""
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"model is {model!r}; expected a module (primal_attention.from_pretrained opens "
            "folders and names of the hub)"
        )
    for name, module in model.named_modules():
        if type(module).__name__ in _WRAPPERS:
            where = f"{name} is" if name else "the model is"
            raise ValueError(
                f"{where} wrapped in {type(module).__name__}, which keeps the old parameters; "
                "expected the plain model: convert first, then wrap (or compile)"
            )


def find_sites(model: nn.Module, *, cross: bool = False) -> list[Site]:
    """All attentions that an adapter knows, converted ones included, in the model's order.

    Cross-attentions only on request. Nothing is looked for inside a site.
    """
    check_model(model)
    adapters = known_adapters()
    found: dict[int, Site] = {}
    inside: list[str] = []
    parents = dict(model.named_modules(remove_duplicate=False))
    for name, module in parents.items():
        if any(name.startswith(prefix) for prefix in inside):
            continue
        if id(module) in found:
            old = found[id(module)]
            names = (*old.names, name)
            found[id(module)] = dataclasses.replace(old, names=names)
            inside.append(f"{name}.")
            continue
        parent = parents[name.rpartition(".")[0]] if name else module
        site = _site(name, module, parent, adapters.values())
        if site is None:
            continue
        if not name:
            raise ValueError(
                f"the model is itself a {class_path(module)}, which cannot be replaced in place; "
                "expected a module that contains it"
            )
        inside.append(f"{name}.")
        found[id(module)] = site
    return [site for site in found.values() if cross or not site.cross]


def _site(
    name: str, module: nn.Module, parent: nn.Module, adapters: Iterable[Adapter]
) -> Site | None:
    if isinstance(module, Converted):
        known = module.conversion
        heads = int(module.primal.num_heads)  # type: ignore[arg-type]
        return Site((name,), module, parent, known_adapters()[known.adapter], known.cross, heads)
    for adapter in adapters:
        try:
            source = adapter.read(module, parent)
        except ValueError:  # of this kind, but not to be converted: an error only if it is chosen
            return Site((name,), module, parent, adapter, False, None)
        if source is not None:
            return Site((name,), module, parent, adapter, source.cross, source.num_heads)
    return None


def select(sites: list[Site], layers: Layers, model: nn.Module) -> list[Site]:
    """The chosen sites. What matches nothing is an error that names what is near."""
    if not sites:
        raise ValueError(_nothing(model))
    chosen = _choose(sites, layers)
    twice = [site.name for site in chosen if isinstance(site.module, Converted)]
    if twice:
        raise ValueError(
            f"{', '.join(twice)} is converted already; expected another layer, or revert_ first"
        )
    return chosen


def _choose(sites: list[Site], layers: Layers) -> list[Site]:
    count = len(sites)
    if isinstance(layers, bool) or layers is None:
        raise TypeError(
            f'layers is {layers!r}; expected "last", "all", an index, a range, a pattern'
        )
    if isinstance(layers, str) and layers in ("last", "all"):
        return sites[-1:] if layers == "last" else list(sites)
    if isinstance(layers, int):
        if not -count <= layers < count:
            raise ValueError(f"layers is {layers}; expected an index from {-count} to {count - 1}")
        return [sites[layers]]
    if isinstance(layers, range):
        beyond = [i for i in layers if not -count <= i < count]
        if beyond:
            raise ValueError(f"layers is {layers!r}; expected indices from {-count} to {count - 1}")
        chosen = [sites[i] for i in sorted({i % count for i in layers})]
    elif isinstance(layers, slice):
        chosen = sites[layers]
    elif isinstance(layers, str | re.Pattern):
        pattern = _compile(layers)
        chosen = [site for site in sites if any(map(pattern.search, site.names))]
    elif callable(layers):
        chosen = [site for site in sites if any(layers(name, site.module) for name in site.names)]
    else:
        raise TypeError(
            f"layers is a {type(layers).__name__}; expected a string, an index, a range, a slice, "
            "a pattern or a predicate"
        )
    if not chosen:
        raise ValueError(_no_match(layers, sites))
    return chosen


def _compile(pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(
            f"layers is {pattern!r}; expected a regular expression: {error}"
        ) from error


def _no_match(layers: object, sites: list[Site]) -> str:
    names = [name for site in sites for name in site.names]
    text = layers.pattern if isinstance(layers, re.Pattern) else layers
    near = difflib.get_close_matches(text, names, n=3, cutoff=0.3) if isinstance(text, str) else []
    first = [*names[:MOST_NAMED], "..."] if len(names) > MOST_NAMED else names
    hint = (
        f"the nearest are {', '.join(near)}" if near else f"the attentions are {', '.join(first)}"
    )
    what = getattr(layers, "__name__", None) or repr(text)
    return f"layers = {what} matches none of {len(sites)} attentions; {hint}"


def _nothing(model: nn.Module) -> str:
    """There is no attention that we know; name the classes that look like one."""
    looks = {class_path(m) for m in model.modules() if _LOOKS.search(type(m).__name__)}
    found = f"no attention was found in {type(model).__name__}"
    if not looks:
        return found
    return (
        f"{found}; {', '.join(sorted(looks))} has no adapter and calls neither transformers' "
        "attention interface nor torch's scaled_dot_product_attention, so there is no place for "
        "another attention (a module that writes softmax out must say how many heads it has, in "
        "num_heads); see register_adapter"
    )


def expect_converted(model: nn.Module, *, originals: bool = False) -> list[Converted]:
    """The converted layers of a model, at least one; with `originals`, each must have its
    original, which moves to the model's present device and type."""
    layers = converted_layers(model)
    if not layers:
        raise ValueError(
            f"{type(model).__name__} has no converted layer; expected a converted model"
        )
    for layer in layers if originals else ():
        original = layer.conversion.original
        if original is None:
            raise ValueError(
                f"{paths(model, layer)[0]} was loaded without its base, so its original is not "
                "known; expected a model that was converted, or loaded with base=..."
            )
        new, old = next(layer.parameters()), next(original.parameters())
        original.to(new.device)
        if new.dtype != old.dtype:  # not otherwise: a part may be of another type on purpose
            original.to(new.dtype)
    return layers


def paths(model: nn.Module, module: nn.Module) -> tuple[str, ...]:
    """All paths to a module of a model."""
    named = model.named_modules(remove_duplicate=False)
    return tuple(name for name, found in named if found is module)


def put(model: nn.Module, names: Iterable[str], module: nn.Module) -> None:
    """Let every path lead to a module."""
    for name in names:
        parent, _, attribute = name.rpartition(".")
        model.get_submodule(parent)._modules[attribute] = module
