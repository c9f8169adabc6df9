"""Outputs of a model under several draws of what is random in it."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..adapters.converted import evaluation
from ..attention.primal.readout import drawing, variational_layers
from ..names import check_choice
from ..theory.seeds import seeded
from .capture import calls

Kind = Literal["readout", "dropout"]


@torch.no_grad()
def draws(
    model: nn.Module, inputs: Any, count: int = 16, *, kind: Kind = "readout", seed: int = 0
) -> Tensor:
    """Outputs (count, B, ...) of a model in evaluation mode, each under one draw.

    `kind="readout"`: of the variational readouts, see `variational_`; a draw is shared by all
    positions and all cases, so that a case has the same outputs in any company. "dropout": of the
    dropout modules (not of dropout inside attentions); cases have masks of their own. `inputs` are
    the arguments of one call: a tensor, a tuple, or a mapping by name. The same seed gives the same
    draws, and torch's generators are left as they were. The mean of `draws(...).softmax(-1)` over
    the first dimension is the predictive distribution.
    """
    check_choice("kind", kind, ("readout", "dropout"))
    if count < 1:
        raise ValueError(f"count is {count}; expected at least 1")
    if kind == "readout" and not variational_layers(model):
        raise ValueError(
            f"{type(model).__name__} has no variational readout; call variational_ before training,"
            ' or take kind="dropout"'
        )
    given = list(calls(inputs))
    if len(given) != 1:
        raise ValueError(f"inputs stand for {len(given)} calls; expected one")
    (args, kwargs), generator = given[0], torch.Generator().manual_seed(seed)
    with evaluation(model):
        if kind == "readout":
            found = []
            for _ in range(count):
                with drawing(model, generator):
                    found.append(logits_of(model(*args, **kwargs)))
            return torch.stack(found)
        modules = [module for module in model.modules() if _drops(module)]
        if not modules:
            raise ValueError(f"{type(model).__name__} has no dropout above 0; expected some")
        for module in modules:
            module.training = True
        with seeded(seed):
            return torch.stack([logits_of(model(*args, **kwargs)) for _ in range(count)])


def logits_of(output: Any) -> Tensor:
    """The tensor that a model gives: itself, `.logits` of Hugging Face, or the first of a tuple."""
    found = getattr(output, "logits", output)
    found = found[0] if isinstance(found, tuple | list) else found
    if not isinstance(found, Tensor):
        raise TypeError(f"the model gives a {type(output).__name__}; expected a tensor or logits")
    return found


def _drops(module: nn.Module) -> bool:
    return "Dropout" in type(module).__name__ and getattr(module, "p", 0.0) > 0
