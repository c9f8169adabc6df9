"""Candidates of a benchmark by name: attentions of the registry with options, and references."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

import torch
from torch import nn

from ..attention import AttentionInfo, attention_info, available_attentions, make_attention
from ..grammar import parse_value, show_value, split_commas
from ..models.options import attention_settings
from ..names import check_choice, unknown
from .blocks import Floor, MaterialisedSoftmax
from .settings import Settings

FLOOR, SOFTMAX, MATERIALISED = "floor", "softmax", "softmax:materialised"
REFERENCES = (FLOOR, SOFTMAX)  # what ratios refer to
KINDS = "weights"  # attentions with this option are compared in all its kinds
MODEL_OPTIONS = ("batch_first", "device", "dtype")  # those are not a candidate's

EXTRAS: dict[str, Callable[..., nn.Module]] = {
    FLOOR: lambda width, heads, **place: Floor(width, **place),
    MATERIALISED: MaterialisedSoftmax,
}


@dataclass(frozen=True)
class Candidate:
    """What is measured under `text`: an attention with options, an entry of EXTRAS, or such `parts`
    for the layers of a model, first layer first."""

    text: str
    name: str = ""
    options: tuple[tuple[str, Any], ...] = ()
    parts: tuple[Candidate, ...] = ()

    @property
    def is_extra(self) -> bool:
        return self.text in EXTRAS

    def layers(self, count: int) -> tuple[Candidate, ...]:
        """The attentions of a model with so many layers."""
        if self.parts and len(self.parts) != count:
            expected = "one attention" if count == 1 else f"one attention, or {count}"
            raise ValueError(
                f"{self.text!r} names the attentions of {len(self.parts)} layers; expected "
                f"{expected}"
            )
        return self.parts or (self,) * count

    def build(self, settings: Settings, length: int) -> nn.Module:
        """The attention alone, for sequences of this length."""
        place = {"device": settings.device, "dtype": getattr(torch, settings.dtype)}
        if self.is_extra:
            return EXTRAS[self.text](settings.width, settings.heads, **place)
        own = dict(self.options)
        if "rank" in attention_info(self.name).options:
            own = {"rank": settings.rank} | own
        (options,) = attention_settings(
            [self.name], {self.name: own}, dropout=0.0, max_length=length, **place
        )
        return make_attention(self.name, settings.width, settings.heads, **options)


def parse_candidates(text: str) -> tuple[Candidate, ...]:
    """Candidates between commas: `name`, `name:word` or `name:option=value`, followed by further
    `option=value` between commas, as in `softmax,primal:free,rank=30,performer:features=128`.

    A word sets the option that has it among its choices (`primal:tied` is weights="tied"), or the
    option of that name that is true or false. A plus joins the attentions of the layers of
    a model, first layer first: `softmax+primal:data,rank=30` is Primal.+Trans.
    """
    groups: list[str] = []
    for part in split_commas(text):
        part = part.strip()
        if groups and re.match(r"\w+=", part):
            groups[-1] += f",{part}"
        else:
            groups.append(part)
    candidates = tuple(map(parse_candidate, groups))
    if len({candidate.text for candidate in candidates}) < len(candidates):
        raise ValueError(f"the attentions are {text!r}; expected each candidate once")
    return candidates


def parse_candidate(text: str) -> Candidate:
    """One candidate, e.g. `primal:free,rank=30`; a ValueError names what does not exist."""
    parts = re.split(r"\+(?!\d)", text)  # not the sign of an exponent
    if len(parts) > 1:
        return Candidate(text, parts=tuple(map(parse_candidate, parts)))
    if text in EXTRAS:
        return Candidate(text)
    name, _, rest = text.partition(":")
    if name not in available_attentions():
        known = (*available_attentions(), *EXTRAS)
        raise ValueError(unknown("attention", name, known))
    info = attention_info(name)
    options = dict(_option(info, part) for part in split_commas(rest)) if rest else {}
    return Candidate(text, name, tuple(options.items()))


def choose_candidates(
    text: str | None,
    usual: Callable[[], tuple[Candidate, ...]],
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> tuple[Candidate, ...]:
    """The candidates that a text names, or the usual ones, each with the `options` of its attention
    that it does not set itself: performer and performer.features=8 is `performer:features=8`."""
    chosen = usual() if text is None else parse_candidates(text)
    for name in options or {}:
        names = {part.name for one in chosen for part in one.parts or (one,)} - {""}
        check_choice("the attention of an option", name, sorted(names))
    return tuple(_with_options(candidate, options) for candidate in chosen) if options else chosen


def _with_options(one: Candidate, options: Mapping[str, Mapping[str, Any]]) -> Candidate:
    if one.parts:
        return parse_candidate("+".join(_with_options(part, options).text for part in one.parts))
    known = dict(one.options)
    more = [f"{n}={show_value(v)}" for n, v in options.get(one.name, {}).items() if n not in known]
    joint = "," if ":" in one.text else ":"
    return parse_candidate(f"{one.text}{joint}{','.join(more)}") if more else one


def default_candidates() -> tuple[Candidate, ...]:
    """Everything: the references, and all attentions in all their kinds."""
    texts = [*REFERENCES, *(extra for extra in EXTRAS if extra not in REFERENCES)]
    for name in available_attentions():
        kinds = _choices(attention_info(name)).get(KINDS, ())
        texts += [f"{name}:{kind}" for kind in kinds] or [name]
    return tuple(parse_candidate(text) for text in dict.fromkeys(texts))


def with_references(
    candidates: Iterable[Candidate], references: Iterable[str] = REFERENCES
) -> tuple[Candidate, ...]:
    """The candidates, after the references that are not among them."""
    given = tuple(candidates)
    texts = {candidate.text for candidate in given}
    return (*(parse_candidate(text) for text in references if text not in texts), *given)


def _option(info: AttentionInfo, text: str) -> tuple[str, Any]:
    """Name and value of `option=value`, or of a word."""
    name, equals, value = (part.strip() for part in text.partition("="))
    if equals:
        known = sorted(option for option in info.options if option not in MODEL_OPTIONS)
        if name not in known:
            raise ValueError(unknown(f"option of attention {info.name!r}:", name, known))
        found = parse_value(value)
        return name, tuple(found) if isinstance(found, list) else found
    words: dict[str, tuple[str, Any]] = {
        word: (option, word) for option, choices in _choices(info).items() for word in choices
    }
    hints = get_type_hints(info.build.__init__)
    words |= {o: (o, True) for o in info.options if hints[o] is bool and o not in MODEL_OPTIONS}
    if text not in words:
        raise ValueError(unknown(f"kind of attention {info.name!r}:", text, words))
    return words[text]


def _choices(info: AttentionInfo) -> dict[str, tuple[str, ...]]:
    """The options of an attention whose values are words of a fixed list."""
    hints = get_type_hints(info.build.__init__)
    return {o: get_args(hints[o]) for o in info.options if get_origin(hints[o]) is Literal}
