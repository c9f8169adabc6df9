"""The options of a conversion, and what they come to at one attention."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from ..adapters.base import Source
from ..attention.base import check_positive
from ..attention.primal.options import check_options
from ..names import check_choice, unknown
from ..theory.features import FEATURE_MAPS

DEFAULT_RANK = 32


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a user asks for; None leaves the choice to each attention.

    rank: s, by default 32, or half the width of a head if that is smaller. weights: "tied", with
    which every position sees every other (or those before it).
    causal: whether the new layer is causal, by default what the old one was as far as one can see.
    start: "warm" takes over projections; "fresh" is the random start of the paper, for training
    from scratch. The others are those of PrimalAttention.
    """

    rank: int | None = None
    weights: str | None = None
    causal: bool | None = None
    anchors: int | None = None
    rank_multi: int = 10
    anchor_rule: str = "sample"
    feature_map: str = "cosine"
    dropout: float | None = None
    start: str = "warm"

    @classmethod
    def of(cls, options: dict[str, Any]) -> Options:
        """From keywords; an unknown one is an error that suggests the near name."""
        known = [field.name for field in dataclasses.fields(cls)]
        for name in options:
            if name not in known:
                raise ValueError(unknown("option of a conversion:", name, known))
        return cls(**options)

    def resolve(self, source: Source) -> dict[str, Any]:
        """The settings at one attention, fit for JSON and for `build_core`."""
        causal = source.causal if self.causal is None else self.causal
        if source.rotary and not causal:
            raise ValueError(
                "causal=False for a decoder with rotary positions; expected None or True"
            )
        weights = "tied" if self.weights is None else self.weights
        rank = self.rank
        if rank is None:
            rank = max(1, min(DEFAULT_RANK, source.head_dim // 2))
        check_options(rank, weights, self.anchors, self.rank_multi, self.anchor_rule, causal)
        check_choice("feature_map", self.feature_map, FEATURE_MAPS)
        check_choice("start", self.start, ("warm", "fresh"))
        check_positive(rank=rank)
        chosen = {"rank": rank, "weights": weights, "causal": causal}
        dropout = source.dropout if self.dropout is None else self.dropout
        return dataclasses.asdict(self) | chosen | {"dropout": dropout}
