"""Attention replaced inside an existing model: plan, convert, revert, save, load.

    plan(model)                 # what would change; prints as a table
    convert_(model, rank=16)    # in place: the last attention
    revert_(model)
    save(model, folder)
    load(folder, base=model)

A conversion changes the function of the model until it is trained or distilled.
"""

from ..adapters.base import Adapter, Projection, Source, projection, register_adapter
from ..adapters.converted import Call, Converted, converted_layers
from ..adapters.masks import hidden_pairs, ignored_keys
from .apply import convert_, revert_
from .distill import Distilled, distill_, init_ksvd_
from .folder import load, save
from .optimizers import check_optimizer
from .planning import Plan, plan
from .positions import extend_positions_
from .pretrained import from_pretrained, pretrained_class
from .publishing import save_pretrained
from .training import KSVDLossMixin

__all__ = [
    "Adapter",
    "Call",
    "Converted",
    "Distilled",
    "KSVDLossMixin",
    "Plan",
    "Projection",
    "Source",
    "check_optimizer",
    "convert_",
    "converted_layers",
    "distill_",
    "extend_positions_",
    "from_pretrained",
    "hidden_pairs",
    "ignored_keys",
    "init_ksvd_",
    "load",
    "plan",
    "pretrained_class",
    "projection",
    "register_adapter",
    "revert_",
    "save",
    "save_pretrained",
]
