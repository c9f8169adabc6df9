"""Numbers, masks and parameters for the tests of single mechanisms."""

import torch
from torch import Tensor, nn


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def holes(length: int) -> Tensor:
    """A mask (4, length): everything valid; holes at random; a few valid ones; one valid."""
    ignore = draw(4, length, seed=5) > torch.tensor([9.0, 0.3, -0.8, 9.0])[:, None]
    ignore[3] = True
    ignore[3, length // 2] = False
    return ignore


def randomised(layer: nn.Module) -> nn.Module:
    """The layer, with every parameter drawn: at the start some are zero."""
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.4)
    return layer.eval()
