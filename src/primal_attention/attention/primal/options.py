"""The options of a primal layer, checked."""

from __future__ import annotations

from typing import Literal, get_args

from ..base import check_positive

Weights = Literal["data", "free", "tied"]
AnchorRule = Literal["sample", "mean", "paper", "learned"]


def default_map(weights: str) -> str:
    """The feature map of a kind of weights whose owner names none: tied weights see every position,
    and a positive map lets them focus on a few."""
    return "elu" if weights == "tied" else "cosine"


def check_options(
    rank: int,
    weights: str,
    anchors: int | None,
    rank_multi: int,
    anchor_rule: str,
    causal: bool,
) -> None:
    """Raise a ValueError that names the first option which cannot be, and what was expected."""
    check_positive(rank=rank, rank_multi=rank_multi, anchors=1 if anchors is None else anchors)
    for name, text, known in (
        ("weights", weights, get_args(Weights)),
        ("anchor_rule", anchor_rule, get_args(AnchorRule)),
    ):
        if text not in known:
            raise ValueError(f"{name} is {text!r}; expected one of {', '.join(map(repr, known))}")
    if weights != "data" and anchors is not None:
        raise ValueError(f'anchors is {anchors}; expected None, since weights is "{weights}"')
    if causal and weights == "data":
        raise ValueError(
            'causal=True with weights="data": the anchors would see ahead; expected '
            'weights="free" or "tied"'
        )
