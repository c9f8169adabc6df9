"""Converting and reverting in place: everything is prepared, then all places change at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast, overload

from torch import nn

from ..adapters.converted import Conversion, Converted
from .core import build_core
from .optimizers import Move, exchange
from .planning import Plan, plan
from .record import forget, note
from .sites import Site, check_model, expect_converted, find_sites, paths, put

M = TypeVar("M", bound=nn.Module)
Wish = Plan | Mapping[str, Any] | None


@overload
def convert_(model: M, what: Wish = None, /, **options: Any) -> M: ...


@overload
def convert_(model: Path | str, what: Wish = None, /, **options: Any) -> nn.Module: ...


def convert_(model: Any, what: Wish = None, /, **options: Any) -> Any:
    """Replace attentions of a model in place by primal attention; returns the model.

        convert_(model)                               # the last attention, as in Primal.+
        convert_(model, layers="all", rank=16)        # the options of `plan`
        convert_(model, plan(model, rank=16))         # what was planned, and nothing else
        model = convert_("models/bert", rank=16)      # a folder, or a name of the hub

    CONVERSION WITHOUT TRAINING CHANGES THE FUNCTION. Queries, keys and the output projection are
    taken over, the rest starts fresh: train the model, or `distill_` it. Optimizers must be built
    after the conversion. A failure leaves the model as it was.
    """
    if isinstance(model, str | Path):
        from .pretrained import from_pretrained

        model = from_pretrained(model)
    if isinstance(what, Plan):
        if options:
            raise ValueError(
                f"{next(iter(options))} is given beside a plan; expected one of the two"
            )
        chosen = what
    else:
        chosen = plan(model, **{**(what or {}), **options})
    moves = [
        (site.names, site.module, replacement(site, settings))
        for site, settings in _matched(model, chosen)
    ]
    swap(model, moves)
    exchange(model, moves)
    note(model)
    return model


def revert_(model: M) -> M:
    """Put the original attentions back, bit for bit as they were taken out; returns the model.

    They follow the model's present device and type. What else was trained meanwhile stays trained.
    """
    check_model(model)
    moves: list[Move] = []
    for layer in expect_converted(model, originals=True):
        original = cast(nn.Module, layer.conversion.original)
        original.train(layer.training)
        moves.append((paths(model, layer), layer, original))
    swap(model, moves)
    exchange(model, moves)
    forget(model)
    return model


def _matched(model: nn.Module, chosen: Plan) -> list[tuple[Site, dict[str, Any]]]:
    """The sites of a plan in this model, which must be like the one that was planned."""
    sites = {site.name: site for site in find_sites(model, cross=chosen.cross)}
    matched = []
    for row in chosen.changes:
        site = sites.get(row.name)
        if site is None or site.names != row.names or type(site.module).__name__ != row.kind:
            raise ValueError(
                f"the plan was made for {chosen.model} with {row.kind} at {row.name}, which this "
                f"{type(model).__name__} has not; expected the model that was planned"
            )
        if row.settings is not None:
            matched.append((site, row.settings))
    return matched


def replacement(site: Site, settings: Mapping[str, Any]) -> Converted:
    """The new module for a site, not yet in the model."""
    source = site.read()
    core = build_core(source, dict(settings))
    new = site.adapter.wrap(site.module, core).train(site.module.training)
    new.conversion = Conversion(site.adapter.name, dict(settings), source.cross, site.module)
    return new


def repeat(model: nn.Module, layers: Sequence[Mapping[str, Any]]) -> list[Move]:
    """Convert the layers of a record in place, untrained; returns what was exchanged."""
    sites = {site.names: site for site in find_sites(model, cross=True)}
    moves: list[Move] = []
    for layer in layers:
        site = sites.get(tuple(layer["names"]))
        if site is None or site.adapter.name != layer["adapter"]:
            raise ValueError(
                f"{layer['names'][0]} is no attention of adapter {layer['adapter']!r} in this "
                f"{type(model).__name__}; expected the model that was converted, with its adapter "
                "registered"
            )
        moves.append((site.names, site.module, replacement(site, layer["settings"])))
    swap(model, moves)
    return moves


def swap(model: nn.Module, moves: Sequence[Move]) -> None:
    """Replace old by new at all places, or at none."""
    done = []
    try:
        for names, old, new in moves:
            done.append((names, old))
            put(model, names, new)
    except BaseException:
        for names, old in done:
            put(model, names, old)
        raise
