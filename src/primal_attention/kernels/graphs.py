"""Whether a graph is being made of the code that runs, in every version of torch from 2.6 on."""

from __future__ import annotations

from collections.abc import Callable

import torch


def _never() -> bool:
    return False


# torch 2.6 cannot tell an export from a compilation: there exported graphs may keep our operators
is_exporting: Callable[[], bool] = getattr(torch.compiler, "is_exporting", _never)
