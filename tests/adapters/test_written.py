"""Modules that write softmax out themselves, in the ways in which people do."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import primal_attention as pa


def attention(q, k, v):
    scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.size(-1))
    return torch.matmul(F.softmax(scores, dim=-1), v)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads, self.qkv, self.out = 2, nn.Linear(8, 24), nn.Linear(8, 8)
        self.register_buffer("seen", torch.ones(16, 16).tril().view(1, 1, 16, 16))
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.out(self.between(q, k, v).transpose(1, 2).flatten(2))


class Operators(Attention):
    def between(self, q, k, v):
        scores = q @ k.mT * q.shape[-1] ** -0.5
        return self.drop(scores.softmax(-1)) @ v


class Function(Attention):
    def between(self, q, k, v):
        return attention(q, k, v)


class Einsum(Attention):
    def between(self, q, k, v):
        q, k, v = (each.transpose(1, 2) for each in (q, k, v))
        weights = torch.softmax(torch.einsum("bihd,bjhd->bhij", q, k) / 2, dim=-1)
        return torch.einsum("bhij,bjhd->bihd", weights, v).transpose(1, 2)


class Causal(Attention):
    def between(self, q, k, v):
        scores, n = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1))), q.shape[2]
        scores = scores.masked_fill(self.seen[:, :, :n, :n] == 0, float("-inf"))
        return self.drop(F.softmax(scores, dim=-1)) @ v


class Padded(Attention):
    """Zeros count as padding; the same mask added and as a choice."""

    def forward(self, x):
        self.hidden = (x == 0).all(-1)[:, None, None]
        return super().forward(x)

    def between(self, q, k, v):
        scores = q @ k.mT / 2.0
        scores = scores + self.hidden.to(q.dtype) * torch.finfo(q.dtype).min
        scores = torch.where(~self.hidden, scores, torch.tensor(-1e9, dtype=q.dtype))
        return scores.softmax(dim=-1).to(v.dtype) @ v


class OverQueries(Attention):
    def between(self, q, k, v):
        scores = q @ k.mT
        return (scores.softmax(-1) * scores.softmax(-2)) @ v


class Sharpened(Attention):
    def between(self, q, k, v):
        return (q @ k.mT).softmax(-1).square() @ v


class Positions(Attention):
    def between(self, q, k, v):
        return (q @ k.mT + torch.linspace(0, 1, q.shape[2], dtype=q.dtype)).softmax(-1) @ v


X = torch.randn(2, 6, 8, dtype=torch.float64)
X[1, 4:] = 0.0


def model(kind):
    torch.manual_seed(0)
    return nn.Sequential(kind(), nn.Linear(8, 8)).double().eval()


@pytest.mark.parametrize("kind", [Operators, Function, Einsum, Causal, Padded])
def test_converts_and_reverts(kind):
    built = model(kind)
    before = built(X)
    keep = (X != 0).any(-1) if kind is Padded else slice(None)
    pa.convert_(built, attention="softmax", example=X)
    torch.testing.assert_close(built(X)[keep], before[keep])
    pa.revert_(built)
    pa.convert_(built, rank=2, example=X)
    assert built[0].primal.causal == (kind is Causal)
    built.train()(X).square().mean().backward()
    assert all(p.grad is not None for p in built[0].primal.parameters() if p.requires_grad)
    pa.revert_(built)
    assert torch.equal(built.eval()(X), before)


def test_no_matrix_is_formed(monkeypatch):
    built = pa.convert_(model(Causal), rank=2, example=X)
    monkeypatch.setattr("primal_attention.adapters.scores.Scores.formed", None)
    built(X)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (OverQueries, "has no softmax of queries and keys that meets values"),
        (Sharpened, "has no softmax of queries and keys that meets values"),
        (Positions, "adds a finite number to single scores"),
    ],
)
def test_what_is_not_understood_is_named(kind, said):
    with pytest.raises(ValueError, match=f"0 cannot be converted: .*{said}"):
        pa.plan(model(kind), example=X)


def test_a_folder(tmp_path):
    built = pa.convert_(model(Causal), rank=2, example=X)
    pa.save(built, tmp_path)
    again = pa.load(tmp_path, base=model(Causal))
    torch.testing.assert_close(again.eval()(X), built(X))
