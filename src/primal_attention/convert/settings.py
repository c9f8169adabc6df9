"""The options of a conversion, and what they come to at one attention."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from ..adapters.base import HeadsSource, Source
from ..attention.base import check_positive
from ..attention.primal.options import check_options, default_map
from ..attention.registry import attention_info
from ..names import check_choice, unknown
from ..theory.features import FEATURE_MAPS

DEFAULT_RANK = 32
# what the place of the attention decides, and not the user
_OURS = ("bias", "batch_first", "device", "dtype", "causal", "dropout")


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a user asks for; None leaves the choice to each attention.

    rank: s, by default 32, or half the width of a head if that is smaller. weights: "tied", with
    which every position sees every other (or those before it). feature_map: that of PrimalAttention
    for the weights; the cosine where heads come with rotary positions, which it alone keeps, or are
    made outside.
    causal: whether the new layer is causal, by default what the old one was as far as one can see.
    start: "warm" takes over projections; "fresh" is the random start of the paper, for training
    from scratch. The others are those of PrimalAttention. With another `attention` of the registry
    there are `causal`, `dropout` and `start`, and its own options.
    """

    attention: str = "primal"
    own: tuple[tuple[str, Any], ...] = ()  # of another attention

    rank: int | None = None
    weights: str | None = None
    causal: bool | None = None
    anchors: int | None = None
    rank_multi: int = 10
    anchor_rule: str = "sample"
    feature_map: str | None = None
    dropout: float | None = None
    start: str = "warm"

    @classmethod
    def of(cls, options: dict[str, Any]) -> Options:
        """From keywords; an unknown one is an error that suggests the near name."""
        name = options.get("attention", "primal")
        if not isinstance(name, str):
            raise TypeError(f"attention is a {type(name).__name__}; expected a name")
        known = {field.name for field in dataclasses.fields(cls)} - {"own"}
        if name != "primal":
            known = {"attention", "causal", "dropout", "start"}
            own = {n for n in attention_info(name).options if n not in _OURS}
            given = tuple((n, value) for n, value in options.items() if n in own)
            options = {n: value for n, value in options.items() if n not in own} | {"own": given}
            known |= own | {"own"}
        for option in options:
            if option not in known:
                raise ValueError(
                    unknown("option of a conversion:", option, sorted(known - {"own"}))
                )
        return cls(**options)

    def resolve(self, source: Source | HeadsSource) -> dict[str, Any]:
        """The settings at one attention, fit for JSON and for `build_core`."""
        causal = source.causal if self.causal is None else self.causal
        dropout = source.dropout if self.dropout is None else self.dropout
        check_choice("start", self.start, ("warm", "fresh"))
        if self.attention != "primal":
            return self._of_another(causal, source.cross, dropout)
        if source.rotary and not causal:
            raise ValueError(
                "causal=False for a decoder with rotary positions; expected None or True"
            )
        weights = "tied" if self.weights is None else self.weights
        if isinstance(source, HeadsSource) and weights != "tied":
            raise ValueError(
                f'weights is {weights!r}; expected "tied", which works on the heads that this '
                "attention makes"
            )
        rank = self.rank
        if rank is None:
            rank = max(1, min(DEFAULT_RANK, source.head_dim // 2))
        check_options(rank, weights, self.anchors, self.rank_multi, self.anchor_rule, causal)
        feature_map = self.feature_map
        if feature_map is None:
            outside = source.rotary or isinstance(source, HeadsSource)
            feature_map = "cosine" if outside else default_map(weights)
        check_choice("feature_map", feature_map, FEATURE_MAPS)
        check_positive(rank=rank)
        chosen = {
            "rank": rank, "weights": weights, "causal": causal, "feature_map": feature_map,
            "dropout": dropout,
        }  # fmt: skip
        settings = dataclasses.asdict(self) | chosen
        return {name: settings[name] for name in settings if name not in ("attention", "own")}

    def _of_another(self, causal: bool, cross: bool, dropout: float) -> dict[str, Any]:
        info = attention_info(self.attention)
        for asked, able, what in (
            (causal, info.causal, "causal"),
            (cross, info.cross, "made for two sequences"),
        ):
            if asked and not able:
                raise ValueError(f"attention {self.attention!r} cannot be {what}; expected another")
        settings = {"attention": self.attention, "start": self.start, **dict(self.own)}
        if "dropout" in info.options:
            settings["dropout"] = dropout
        return settings | ({"causal": causal} if info.causal else {})
