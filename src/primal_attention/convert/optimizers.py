"""An optimizer that was built before a conversion trains parameters that no model has any more."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from torch import nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from ..adapters.converted import converted_layers
from .sites import paths

Move = tuple[tuple[str, ...], nn.Module, nn.Module]  # all paths, the old module and the new

_replaced: weakref.WeakValueDictionary[int, nn.Parameter] = weakref.WeakValueDictionary()
_fine: weakref.WeakKeyDictionary[Optimizer, int] = weakref.WeakKeyDictionary()
_changes = 0
_watching = False


def check_optimizer(model: nn.Module, optimizer: Optimizer) -> None:
    """Raise unless an optimizer has all trainable parameters of the converted layers, and none that
    a conversion replaced."""
    _expect_none_replaced(optimizer)
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    for layer in converted_layers(model):
        missing = [n for n, p in layer.named_parameters() if p.requires_grad and id(p) not in held]
        if missing:
            raise ValueError(
                f"the optimizer has no {missing[0]} of {paths(model, layer)[0]} (and "
                f"{len(missing) - 1} more); expected one that is built after convert_"
            )


def exchange(model: nn.Module, moves: Sequence[Move]) -> None:
    """Remember which parameters left a model with the old modules of a `swap`; from now on every
    optimizer is looked at in its next step, once after each conversion."""
    global _changes, _watching
    held = {id(p) for p in model.parameters()}  # tied ones too, which leave one place only
    for each in held:
        _replaced.pop(each, None)
    gone = (p for _, old, _ in moves for p in old.parameters() if id(p) not in held)
    _replaced.update((id(p), p) for p in gone)
    _changes += 1
    if not _watching:
        register_optimizer_step_pre_hook(_before_step)
        _watching = True


def _before_step(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    if _fine.get(optimizer) != _changes:
        _expect_none_replaced(optimizer)
        _fine[optimizer] = _changes


def _expect_none_replaced(optimizer: Optimizer) -> None:
    held = (p for group in optimizer.param_groups for p in group["params"])
    count = sum(_replaced.get(id(p)) is p for p in held)
    if count:
        raise ValueError(
            f"the optimizer still holds {count} parameters that convert_, revert_ or load took "
            "out of the model; expected one that is built after the conversion"
        )
