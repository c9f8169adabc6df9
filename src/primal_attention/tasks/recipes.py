"""What the paper tuned for a set and a model: the rank s and eta."""

from __future__ import annotations

from typing import Any, NamedTuple


class Column(NamedTuple):
    """What the paper chose for one set and one model."""

    rank: int  # s
    eta: float


def tuned(primalformer: Column, primal_trans: Column, attention: tuple[str, ...]) -> dict[str, Any]:
    """The paper's rank and eta for a model, which is one attention name a layer: PrimalFormer where
    every layer is primal, Primal.+Trans. where the last one is."""
    if "primal" not in attention:
        return {"eta": 0.0}
    if all(layer == "primal" for layer in attention):
        return primalformer._asdict()
    if attention[-1] == "primal" and attention.count("primal") == 1:
        return primal_trans._asdict()
    raise ValueError(
        f"the attentions are {', '.join(attention)}; expected for the recipe 'paper' all primal "
        "(PrimalFormer), the last alone (Primal.+Trans.), or none"
    )
