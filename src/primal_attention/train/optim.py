"""Optimisers in one pass over the parameters: torch's fused kernel, also for RAdam."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from ..names import unknown


class RAdam(torch.optim.Adam):
    """Rectified Adam (Liu et al., 2020) on the fused kernel of Adam; the update of
    `torch.optim.RAdam` up to rounding, in one pass over memory instead of ten.

    With the bias corrections b1, b2 of Adam and the rectification `rect` the update is

        lr * rect * (m / b1) * sqrt(b2) / (sqrt(v) + eps)

    which is Adam's with lr' = lr * rect and eps' = eps / sqrt(b2). In the first steps, where the
    variance is not tractable, it is lr * m / b1: Adam's in the limit eps' = E, lr' = lr * E.
    """

    _plain = 2.0**64  # E: sqrt(v) vanishes beside it in every floating-point type of a state

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, fused=True)

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        stated = [(group["lr"], group["eps"]) for group in self.param_groups]
        for group in self.param_groups:
            group["lr"], group["eps"] = self._rectified(group, self._steps(group) + 1)
        try:
            return super().step(closure)  # type: ignore[no-any-return]
        finally:
            for group, (lr, eps) in zip(self.param_groups, stated, strict=True):
                group["lr"], group["eps"] = lr, eps

    def _steps(self, group: dict[str, Any]) -> int:
        """Steps that the group has made."""
        for parameter in group["params"]:
            if state := self.state.get(parameter):
                return int(state["step"])
        return 0

    def _rectified(self, group: dict[str, Any], step: int) -> tuple[float, float]:
        beta2 = group["betas"][1]
        correction2 = 1 - beta2**step
        longest = 2 / (1 - beta2) - 1
        length = longest - 2 * step * beta2**step / correction2
        if length <= 5:
            return group["lr"] * self._plain, self._plain
        rect = math.sqrt(
            (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
        )
        return group["lr"] * rect, group["eps"] / math.sqrt(correction2)


_MAKERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "radam": RAdam,
    "adam": lambda parameters, **options: torch.optim.Adam(parameters, fused=True, **options),
    "adamw": lambda parameters, **options: torch.optim.AdamW(parameters, fused=True, **options),
}

OPTIMIZERS = tuple(_MAKERS)


def make_optimizer(
    name: str, parameters: Iterable[Tensor], *, lr: float, weight_decay: float = 0.0
) -> torch.optim.Optimizer:
    """An optimiser by name: "radam", "adam" or "adamw"."""
    if name not in _MAKERS:
        raise ValueError(unknown("optimizer", name, OPTIMIZERS))
    return _MAKERS[name](parameters, lr=lr, weight_decay=weight_decay)
