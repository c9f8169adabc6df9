"""Where a number that is not finite came from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


@torch.no_grad()
def describe(model: nn.Module, inputs: Sequence[Any]) -> str:
    """ "; <what> of <where> is not finite" for the first parameter, input, layer output or gradient
    that is not, "" if all are."""
    bare = getattr(model, "module", model)  # without the wrapper of Fabric
    for name, parameter in bare.named_parameters():
        if not parameter.isfinite().all():
            return f"; the parameter {name} is not finite"
    floats = [one for one in inputs if isinstance(one, Tensor) and one.is_floating_point()]
    if not all(one.isfinite().all() for one in floats):
        return "; the inputs are not finite"
    if layer := _first_layer(model, bare, inputs):
        return f"; the output of {layer} is not finite"
    for name, parameter in bare.named_parameters():
        if parameter.grad is not None and not parameter.grad.isfinite().all():
            return f"; the gradient of {name} is not finite"
    return ""


def _first_layer(model: nn.Module, bare: nn.Module, inputs: Sequence[Any]) -> str | None:
    """Run the model again; the name of the first module, in order of execution, whose output is not
    finite though it is part of no other such module before it."""
    found: list[str] = []

    def watch(name: str) -> Any:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            tensor = output[0] if isinstance(output, tuple) else output
            if isinstance(tensor, Tensor) and not tensor.isfinite().all():
                found.append(name)

        return hook

    hooks = [m.register_forward_hook(watch(n)) for n, m in bare.named_modules() if n]
    try:
        model(*inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return found[0] if found else None
