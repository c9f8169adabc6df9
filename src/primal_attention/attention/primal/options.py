"""The options of a primal layer, checked."""

from __future__ import annotations

from typing import Literal, get_args

Weights = Literal["data", "free", "tied"]
AnchorRule = Literal["sample", "mean"]


def check_options(
    embed_dim: int,
    num_heads: int,
    rank: int,
    weights: str,
    anchors: int | None,
    rank_multi: int,
    anchor_rule: str,
    causal: bool,
    dropout: float,
) -> None:
    """Raise a ValueError that names the first option which cannot be, and what was expected."""
    at_least_one = {"embed_dim": embed_dim, "num_heads": num_heads, "rank": rank}
    at_least_one |= {"rank_multi": rank_multi, "anchors": 1 if anchors is None else anchors}
    for name, number in at_least_one.items():
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise ValueError(f"{name} is {number!r}; expected an integer of at least 1")
    if embed_dim % num_heads:
        raise ValueError(f"num_heads is {num_heads}; expected a divisor of embed_dim = {embed_dim}")
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
    if not 0.0 <= dropout < 1.0:
        raise ValueError(f"dropout is {dropout}; expected a number in [0, 1)")
