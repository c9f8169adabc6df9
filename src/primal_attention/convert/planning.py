"""What a conversion would change: a Plan, which changes nothing itself."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from ..adapters.base import HeadsSource, Source, class_path
from ..adapters.converted import Converted
from ..attention.primal.heads import HeadsPrimalAttention
from ..attention.softmax import softmax_flops
from ..runs.tables import aligned
from .core import build_core
from .seconds import NOT_TIMED, Seconds
from .settings import Options
from .sites import Layers, Site, find_sites, select
from .tracing import understand

WARNING = (
    "Conversion without training CHANGES THE FUNCTION of the model: train it, or distill it "
    "(primal_attention.convert.distill_) before use."
)


@dataclass(frozen=True)
class Row:
    """One attention of the model; `settings` is None where nothing changes."""

    names: tuple[str, ...]
    kind: str  # class of the module
    adapter: str
    settings: dict[str, Any] | None
    parameters: int
    parameters_after: int
    flops: int  # of one sequence of the plan's length
    flops_after: int
    note: str = ""

    @property
    def name(self) -> str:
        return self.names[0]


@dataclass(frozen=True)
class Measured:
    """An attention on the user's inputs. rank: the effective rank of its matrix, and tail: the
    share of the matrix's variance beyond the leading s directions, which no layer of rank s has
    (NaN where the matrix cannot be read). error: of the new layer against the original, after a
    short distillation. agreement: of the model with the original, if this attention alone is
    converted, and divergence: how far its outputs then are from the original's (Kullback-Leibler
    divergence of logits, else relative squared error). saved: FLOPs of a sequence of the plan's
    length, and seconds: what the attention and its replacement take for it here."""

    rank: float
    tail: float
    error: float
    agreement: float
    divergence: float
    saved: int
    seconds: Seconds = NOT_TIMED


class Together(NamedTuple):
    """A model of which some attentions are converted, against the original."""

    agreement: float
    divergence: float


@dataclass(frozen=True)
class Plan:
    """All attentions of a model, and what becomes of those that were chosen. `print(plan)`.

    measured: every attention by name, where there were batches to measure on. together: those that
    were chosen, in turn, each with what all up to it give together, after the short distillation.
    """

    model: str
    rows: tuple[Row, ...]
    length: int
    cross: bool
    measured: Mapping[str, Measured] = field(default_factory=dict)
    together: Mapping[str, Together] = field(default_factory=dict)

    @property
    def changes(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.settings is not None)

    def table(self) -> list[tuple[str, ...]]:
        """A header, a line for every attention and the sums."""
        head: tuple[str, ...] = ("attention", "now", "after", "parameters", "FLOPs a token", "note")
        lines: list[tuple[str, ...]] = [_line(row, self.length) for row in self.rows]
        if self.measured:
            more = ("ms", "effective rank", "beyond s", "error", "agreement", "together, in turn")
            turns = {
                name: f"{turn}: {reached.agreement:.4f}"
                for turn, (name, reached) in enumerate(self.together.items(), 1)
            }
            head = (*head[:-1], *more, head[-1])
            lines = [
                (*line[:-1], *_figures(self.measured.get(r.name)), turns.get(r.name, ""), line[-1])
                for line, r in zip(lines, self.rows, strict=True)
            ]
        total = (
            "all attentions", "", f"{len(self.changes)} of {len(self.rows)} change",
            _change(
                sum(r.parameters for r in self.rows), sum(r.parameters_after for r in self.rows)
            ),
            _change(
                sum(r.flops for r in self.rows) // self.length,
                sum(r.flops_after for r in self.rows) // self.length,
            ),
            *self._totals(), f"at length {self.length}",
        )  # fmt: skip
        return [head, *lines, total]

    def _totals(self) -> tuple[str, ...]:
        """Of the columns of what was measured: the time of all attentions."""
        if not self.measured:
            return ()
        changed = {row.name for row in self.changes}
        before = sum(each.seconds.before for each in self.measured.values())
        after = sum(each.seconds[name in changed] for name, each in self.measured.items())
        return (_milliseconds(before, after), *[""] * 5)

    def __str__(self) -> str:
        return "\n".join([self.model, *aligned(self.table()), WARNING])


def plan(
    model: nn.Module | Path | str,
    layers: Layers = "last",
    *,
    cross: bool = False,
    length: int = 512,
    example: Any = None,
    batches: Iterable[Any] | None = None,
    budget: str | float | None = None,
    quality: float | None = None,
    count: int | None = None,
    tell: Callable[[int, int, str], None] | None = None,
    **options: Any,
) -> Plan:
    """What `convert_` would do to a model: which attentions, with what parameters and cost.

    model: or a folder, or a name of the hub, for `from_pretrained`.

    layers: "last", "all", an index, a range or slice of indices (in the model's order), a regular
    expression that is searched in the module's path, or a predicate(path, module). What matches
    nothing is an error. cross: whether cross-attentions count. length: the sequence length of the
    cost. example: a batch on which attentions of a kind that is not known by name are checked; by
    default the first of `batches`, and for models of Hugging Face one is made. options: attention,
    a name of the registry ("primal"), and the options of that one; for primal rank, weights,
    causal, anchors, rank_multi, anchor_rule, feature_map, dropout, start; see `Options`.

    batches: inputs on which every attention of `layers` is measured (see `Measured`), on a copy of
    the model. budget="2x" then chooses one after another, each the one that adds least divergence
    to those before it for each FLOP that it saves, until the attentions take half of their FLOPs;
    count=4 the first four of them; quality=0.99 as many as leave an agreement of 0.99 with the
    original together. tell(done, of, text) hears of every part of a measurement, which takes as
    long as some forwards of all batches for each attention.

    Nothing is changed. A conversion changes the function of the model until it is trained.
    """
    if isinstance(length, bool) or not isinstance(length, int) or length < 1:
        raise ValueError(f"length is {length!r}; expected an integer of at least 1")
    if isinstance(model, str | Path):
        from .pretrained import opened

        model = opened(model)
    if batches is not None:
        from .choosing import Choice
        from .inputs import listed
        from .measuring import measured_plan

        kind = {"cross": cross, "length": length, "example": example, **options}
        choice = Choice(budget, quality, count)
        return measured_plan(model, listed(batches), layers, choice, kind, tell)
    if (budget, quality, count) != (None, None, None):
        raise ValueError(
            "budget, quality or count is given without batches; expected some to measure on"
        )
    asked = Options.of(options)
    sites = find_sites(model, cross=cross)
    chosen = select(sites, layers, model)
    causal = understand(model, [s for s in chosen if isinstance(s.read(), HeadsSource)], example)
    by_site = {
        site: dataclasses.replace(asked, causal=causal[site.name])
        if asked.causal is None and site.name in causal
        else asked
        for site in chosen
    }
    rows = [_row(site, by_site.get(site), length, model) for site in sites]
    return Plan(class_path(model), tuple(rows), length, cross)


def _row(site: Site, asked: Options | None, length: int, model: nn.Module) -> Row:
    now = sum(p.numel() for p in site.module.parameters())
    kind = type(site.module).__name__
    if asked is None:
        flops, note = _flops_now(site, length)
        return Row(site.names, kind, site.adapter.name, None, now, now, flops, flops, note)
    source = site.read()
    try:
        settings = asked.resolve(source)
        core = build_core(source, settings, device="meta")
        replacement = site.adapter.wrap(site.module, core)
    except ValueError as error:
        raise ValueError(f"{site.name} cannot be converted: {error}") from error
    after = sum(p.numel() for p in replacement.parameters())
    return Row(
        site.names, kind, site.adapter.name, settings, now, after,
        _flops_before(source, length), _flops_after(source, core, length),
        _note(site, settings, source, _owners(model, site)),
    )  # fmt: skip


def _flops_now(site: Site, length: int) -> tuple[int, str]:
    if isinstance(site.module, Converted):
        formula = getattr(site.module.primal, "cost", None)
        return 0 if formula is None else formula(length).flops, "converted already"
    try:
        return _flops_before(site.read(), length), ""
    except ValueError as error:
        return 0, str(error).partition(": ")[2]


def _flops_after(source: Source | HeadsSource, core: Any, length: int) -> int:
    """By the formula of the new attention; projections that stay are counted with it."""
    if not hasattr(core, "cost"):
        return 0
    flops: int = core.cost(length).flops
    if isinstance(core, HeadsPrimalAttention):
        flops += _flops_before(source, length) - 4 * length**2 * core.num_heads * core.head_dim
    return flops


def _flops_before(source: Source | HeadsSource, length: int) -> int:
    inner = source.num_heads * source.head_dim
    return softmax_flops(length, source.embed_dim, inner, source.groups)


def _owners(model: nn.Module, site: Site) -> list[str]:
    """Modules outside the site that hold a parameter of it."""
    own = {id(p) for p in site.module.parameters()}
    inside = {id(m) for m in site.module.modules()}
    return [
        name
        for name, module in model.named_modules()
        if id(module) not in inside and any(id(p) in own for p in module.parameters(recurse=False))
    ]


def _note(
    site: Site, settings: dict[str, Any], source: Source | HeadsSource, owners: Sequence[str]
) -> str:
    notes = [f"drops {what}" for what in getattr(source, "dropped", ())]
    if settings.get("rank", 0) >= source.head_dim:
        notes.append(
            f"rank is not below the width of a head, {source.head_dim}: it reduces nothing"
        )
    if settings.get("weights") == "free" and not settings["causal"]:
        notes.append("free weights " + ("ignore the context" if site.cross else "mix no positions"))
    if len(site.names) > 1:
        notes.append(f"shared by {len(site.names)} places, which stay shared")
    if owners:
        notes.append(f"weights shared with {', '.join(owners)} are copied: the tie ends")
    return "; ".join(notes)


def _line(row: Row, length: int) -> tuple[str, ...]:
    after = "as it is"
    if row.settings is not None:
        s = row.settings
        after = s.get("attention") or f"primal {s['weights']}, rank {s['rank']}"
        after += ", causal" if s.get("causal") else ""
    return (
        row.name, row.kind, after,
        _change(row.parameters, row.parameters_after),
        _change(row.flops // length, row.flops_after // length),
        row.note,
    )  # fmt: skip


def _figures(found: Measured | None) -> tuple[str, ...]:
    if found is None:
        return ("",) * 5
    shown = (found.rank, found.tail, found.error, found.agreement)
    texts = [f"{value:.{digits}f}" for value, digits in zip(shown, (1, 3, 3, 4), strict=True)]
    figures = ("?" if text == "nan" else text for text in texts)
    return (_milliseconds(*found.seconds), *figures)


def _milliseconds(before: float, after: float) -> str:
    return "?" if math.isnan(before) else f"{1000 * before:.3g} -> {1000 * after:.3g}"


def _change(before: int, after: int) -> str:
    return f"{before:,}" if before == after else f"{before:,} -> {after:,}"
