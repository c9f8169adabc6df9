"""Layers to deploy, and batches of every awkward size."""

import pytest
import torch
from torch import Tensor, nn

import primal_attention as pa

KINDS = {
    "data": {"weights": "data", "anchors": 6},
    "data mean": {"weights": "data", "anchors": 6, "anchor_rule": "mean"},
    "free": {"weights": "free"},
    "tied": {"weights": "tied"},
    "causal free": {"weights": "free", "causal": True},
    "causal tied": {"weights": "tied", "causal": True},
    "folded scores": {"weights": "free", "rank": 1, "fold": True},
    "folded features": {"weights": "free", "rank": 4, "fold": True},
}


class Masked(nn.Module):
    """A layer as the function of a sequence and its padding that one would deploy."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.layer(x, key_padding_mask=mask)[0]


@pytest.fixture(params=KINDS.keys())
def kind(request) -> str:
    return request.param


@pytest.fixture(params=[name for name, options in KINDS.items() if "fold" not in options])
def unfolded(request) -> str:
    return request.param


@pytest.fixture
def make_model():
    def make(name, **options):
        torch.manual_seed(2)
        options = {"rank": 2} | KINDS[name] | options
        fold = options.pop("fold", False)
        layer = pa.PrimalAttention(8, 2, **options).eval()
        if fold:
            pa.fold_(layer)
            assert layer.folded == name.split()[1]
        return Masked(layer).eval()

    return make


@pytest.fixture
def batch():
    """x (B, N, 8) and a padding mask; every second sample is cut, not always at its end."""
    generator = torch.Generator().manual_seed(7)

    def draw(samples, length, dtype=torch.float32):
        x = torch.randn(samples, length, 8, generator=generator).to(dtype)
        mask = torch.zeros(samples, length, dtype=torch.bool)
        for i in range(0, samples, 2):
            mask[i, length // 2 + 1 :] = True
            mask[i, 0] = length > 2
        return x, mask

    return draw


@pytest.fixture(scope="session")
def sizes():
    """(batch, length): one position, fewer than anchors, and around the chunks of the scan."""
    return [(1, 1), (2, 2), (2, 3), (5, 64), (3, 65), (1, 131)]
