"""Small primal layers with every parameter drawn at random, and masks to go with them."""

import pytest
import torch

from primal_attention import PrimalAttention, ksvd_loss

# every way to build a layer, by name
KINDS = {
    "data-sample": {"weights": "data", "anchors": 5},
    "data-mean": {"weights": "data", "anchors": 5, "anchor_rule": "mean"},
    "free": {"weights": "free"},
    "tied": {"weights": "tied", "feature_map": "cosine"},
    "free-causal": {"weights": "free", "causal": True},
    "tied-causal": {"weights": "tied", "feature_map": "cosine", "causal": True},
}


def build(kind, embed_dim=6, num_heads=2, *, seed=0, dtype=torch.float64, **options):
    """A layer none of whose parameters is zero (biases are, after the usual initialisation)."""
    generator = torch.Generator().manual_seed(seed)
    options = {"rank": 2, **KINDS[kind], **options}
    layer = PrimalAttention(embed_dim, num_heads, dtype=torch.float64, **options)
    with torch.no_grad():
        for name, parameter in sorted(layer.named_parameters()):
            drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(0.6 * drawn + (0.5 if name == "sqrt_lambda" else 0.0))
    return layer.to(dtype)


@pytest.fixture(scope="session")
def make_layer():
    return build


@pytest.fixture(scope="session")
def make_rows():
    """Normal numbers from a seed."""

    def draw(*shape, seed=1, dtype=torch.float64):
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

    return draw


@pytest.fixture(scope="session")
def make_mask():
    """Ignored positions anywhere, some in every sample, but at least `keep` valid ones."""

    def draw(batch, length, *, seed=2, keep=1):
        generator = torch.Generator().manual_seed(seed)
        ignore = torch.rand(batch, length, generator=generator) < 0.4
        for row in ignore:
            order = torch.randperm(length, generator=generator)
            row[order[keep:][:1]] = True
            row[order[:keep]] = False
        return ignore

    return draw


@pytest.fixture(scope="session")
def gradients():
    """Gradients of a scalar with respect to every parameter by name, and to further tensors."""

    def take(loss, layer, **tensors):
        named = {**dict(layer.named_parameters()), **tensors}
        found = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
        return {
            name: torch.zeros_like(at) if grad is None else grad
            for (name, at), grad in zip(named.items(), found, strict=True)
        }

    return take


@pytest.fixture(scope="session")
def run(gradients):
    """Output, loss and all gradients of one training step on x (and y)."""

    def step(layer, x, y=None, ignore=None, *, fast=True, positions="mean", probe=None):
        layer.fast = fast
        layer.train()
        x = x.detach().clone().requires_grad_()
        y = None if y is None else y.detach().clone().requires_grad_()
        out, _ = layer(x, y, key_padding_mask=ignore)
        loss = ksvd_loss(layer, positions=positions)
        probe = torch.ones_like(out) if probe is None else probe
        scalar = (out.square() * probe).sum() + loss.to(out.dtype)
        tensors = {"input": x} if y is None else {"input": x, "context": y}
        grads = gradients(scalar, layer, **tensors)
        return out.detach(), loss.detach(), grads

    return step
