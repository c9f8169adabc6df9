"""Small models in float64, and the objective (11) written out position by position."""

from fractions import Fraction

import pytest
import torch
from torch import Tensor, nn

import primal_attention as pa

KINDS = {
    "data": {"weights": "data", "anchors": 5},
    "data mean": {"weights": "data", "anchors": 5, "anchor_rule": "mean"},
    "free": {"weights": "free"},
    "tied": {"weights": "tied"},
    "causal free": {"weights": "free", "causal": True},
    "causal tied": {"weights": "tied", "causal": True},
}


class Encoder(nn.Module):
    """Residual primal layers and a readout; called on any number of documents."""

    def __init__(self, depth: int, kind: dict, width: int = 8) -> None:
        super().__init__()
        options = {"rank": 2, "feature_map": "cosine"} | kind
        layers = [pa.PrimalAttention(width, 2, **options) for _ in range(depth)]
        self.layers = nn.ModuleList(layers)
        self.readout = nn.Linear(width, 3)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        for layer in self.layers:
            x = x + layer(x, key_padding_mask=mask)[0]
        return self.readout(x.mean(1))


@pytest.fixture(params=KINDS.values(), ids=KINDS.keys())
def kind(request) -> dict:
    return request.param


@pytest.fixture
def randn():
    generator = torch.Generator().manual_seed(5)

    def draw(*shape, dtype=torch.float64):
        return torch.randn(shape, generator=generator, dtype=dtype)

    return draw


@pytest.fixture
def make_layer():
    def make(kind, **options):
        torch.manual_seed(3)
        common = {"rank": 2, "dtype": torch.float64, "feature_map": "cosine"}
        options = common | kind | options
        return pa.PrimalAttention(8, 2, **options)

    return make


@pytest.fixture
def make_encoder():
    def make(kind, depth=2, dtype=torch.float64):
        torch.manual_seed(3)
        return Encoder(depth, kind).to(dtype)

    return make


@pytest.fixture
def gradients():
    """The gradients of a model (zero where there is none), which are then cleared."""

    def take(model):
        found = {
            name: torch.zeros_like(p) if p.grad is None else p.grad.clone()
            for name, p in model.named_parameters()
        }
        model.zero_grad()
        return found

    return take


@pytest.fixture
def held():
    """How many forwards a layer remembers."""

    def count(layer):
        ledger = layer.ledger
        return len(ledger.entries) + len(ledger.seen) + len(ledger._slots())

    return count


@pytest.fixture
def by_hand():
    """J of one sequence, the mean over heads of (11)."""
    return _objective


def _objective(
    layer: pa.PrimalAttention, x: Tensor, y: Tensor | None = None, positions: str = "mean"
) -> Tensor:
    y = x if y is None else y
    if layer.causal and layer.weights == "free":
        x = y = torch.stack([x[: i + 1].mean(0) for i in range(len(x))])
    return torch.stack([_head(layer, head, x, y, positions) for head in range(2)]).mean()


def _head(layer: pa.PrimalAttention, head: int, x: Tensor, y: Tensor, positions: str) -> Tensor:
    own = slice(head * layer.head_dim, (head + 1) * layer.head_dim)
    w_q, w_k = layer.in_proj_weight.chunk(2)
    b_q, b_k = layer.in_proj_bias.chunk(2)

    def phi(rows, weight, bias):
        features = rows @ weight[own].T + bias[own]
        return features / features.norm(dim=-1, keepdim=True)

    phi_q, phi_k = phi(x, w_q, b_q), phi(y, w_k, b_k)
    if layer.weights == "tied":
        v_e, v_r = layer.dual_weight.chunk(2)
        directions = slice(head * layer.rank, (head + 1) * layer.rank)
        h_e, h_r = y @ v_e[directions].T, y @ v_r[directions].T
        phi_q_context = phi(y, w_q, b_q)

        def projections(length):
            w_e = sum(torch.outer(phi_k[j], h_r[j]) for j in range(length)) / length
            w_r = sum(torch.outer(phi_q_context[j], h_e[j]) for j in range(length)) / length
            return w_e, w_r

        w_e, w_r = projections(len(y))
        trace = torch.trace(w_e.T @ w_r)
        if layer.causal:
            pairs = [projections(i + 1) for i in range(len(x))]
            e = torch.stack([pair[0].T @ q for pair, q in zip(pairs, phi_q, strict=True)])
            r = torch.stack([pair[1].T @ k for pair, k in zip(pairs, phi_k, strict=True)])
        else:
            e, r = phi_q @ w_e, phi_k @ w_r
    else:
        w_e, w_r = layer.w_e[head], layer.w_r[head]
        trace = torch.trace(w_e.T @ w_r)
        f = torch.eye(layer.head_dim, dtype=x.dtype)
        if layer.weights == "data":
            f = _anchors(y, layer.anchors, layer.anchor_rule)[:, own]
        e, r = phi_q @ f.T @ w_e, phi_k @ f.T @ w_r
    lam = torch.diag(layer.sqrt_lambda[head] ** 2)
    energy_e = sum(row @ lam @ row for row in e)
    energy_r = sum(row @ lam @ row for row in r)
    if positions == "mean":
        energy_e, energy_r = energy_e / len(x), energy_r / len(y)
    return energy_e / 2 + energy_r / 2 - trace


def _anchors(y: Tensor, n: int, rule: str) -> Tensor:
    length = len(y)
    if rule == "sample":
        return y[[round(Fraction(i * (length - 1), n - 1)) for i in range(n)]]
    segments = min(n, length)
    of = [j * segments // length for j in range(length)]
    means = [y[[j for j in range(length) if of[j] == k]].mean(0) for k in range(segments)]
    return torch.stack([means[i * segments // n] for i in range(n)])
