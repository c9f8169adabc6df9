"""A module that calls torch's function, found by its code and checked by an example."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import primal_attention as pa
from primal_attention.train.adapt import AdaptSettings


class Attention(nn.Module):
    """Grouped keys, normalised heads, a scale and a gate of its own: nobody knows this module."""

    def __init__(self, causal=False, scale=0.3):
        super().__init__()
        self.num_heads, self.num_key_value_heads, self.head_dim = 4, 2, 4
        self.causal, self.scale = causal, scale
        self.to_qkv = nn.Linear(12, 4 * 8)
        self.norm, self.gate, self.out = nn.LayerNorm(4), nn.Linear(12, 16), nn.Linear(16, 12)

    def forward(self, x, visible=None):
        q, k, v = self.to_qkv(x).unflatten(-1, (8, 4)).transpose(1, 2).split([4, 2, 2], 1)
        mask = None if visible is None else visible[:, None, None]
        heads = F.scaled_dot_product_attention(
            self.norm(q), self.norm(k), v, attn_mask=mask, is_causal=self.causal,
            scale=self.scale, enable_gqa=True,
        )  # fmt: skip
        return self.out(heads.transpose(1, 2).flatten(2) * self.gate(x).sigmoid())


def model(**options):
    torch.manual_seed(0)
    return nn.Sequential(Attention(**options), nn.Linear(12, 12)).double().eval()


X = torch.randn(2, 6, 12, dtype=torch.float64)


@pytest.mark.parametrize("causal", [False, True])
def test_converts_and_reverts(causal):
    built = model(causal=causal)
    before = built(X)
    pa.convert_(built, rank=4, example=X)
    after = built(X)
    assert not torch.allclose(after, before)
    changed = X.clone()
    changed[:, 4:] = 0.0
    assert torch.allclose(built(changed)[:, :4], after[:, :4]) == causal
    pa.revert_(built)
    assert torch.equal(built(X), before)


def test_softmax_is_what_it_was():
    built = model()
    visible = torch.ones(2, 6, dtype=torch.bool)
    visible[1, 4:] = False
    before = built[0](X, visible)
    pa.convert_(built, attention="softmax", example=X)
    torch.testing.assert_close(built[0](X, visible)[visible], before[visible])


def test_an_example_is_needed():
    with pytest.raises(
        ValueError, match="Sequential is no model of transformers; expected example="
    ):
        pa.plan(model())


def test_what_is_not_understood_is_named():
    built = model()
    built[0].num_heads = 2
    with pytest.raises(ValueError, match="it has 4 heads of width 4; expected 2 of width 4"):
        pa.plan(built, example=X)


class Helped(Attention):
    """The function is called by a method, and is handed a mask."""

    mask = None

    def between(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask, enable_gqa=True)

    def forward(self, x):
        q, k, v = self.to_qkv(x).unflatten(-1, (8, 4)).transpose(1, 2).split([4, 2, 2], 1)
        return self.out(self.between(q, k, v).transpose(1, 2).flatten(2))


class Twice(Helped):
    def forward(self, x):
        return super().forward(x) + super().forward(2 * x)


def helped(kind):
    torch.manual_seed(0)
    return nn.Sequential(kind(), nn.Linear(12, 12)).double().eval()


def test_the_function_may_be_called_by_a_method():
    built = helped(Helped)
    before = built(X)
    pa.convert_(built, attention="softmax", example=X)
    torch.testing.assert_close(built(X), before)


@pytest.mark.parametrize("mask", [torch.rand(6, 6), torch.eye(6).bool()])
def test_a_mask_that_cannot_be_honoured_is_refused_before_the_conversion(mask):
    built = helped(Helped)
    built[0].mask = mask if mask.dtype == torch.bool else mask.double()
    with pytest.raises(ValueError, match=r"0 cannot be converted: the mask (adds|hides)"):
        pa.plan(built, example=X)


def test_two_attentions_in_a_module_are_refused():
    built = helped(Twice)
    with pytest.raises(ValueError, match="its forward has 2 attentions; expected one"):
        pa.plan(built, example=X)


def test_the_first_batch_is_the_example():
    batches = [X.clone() for _ in range(4)]
    assert pa.plan(model(), batches=batches).measured
    settings = AdaptSettings(layerwise=1, steps=1)
    assert pa.adapt_(model(), batches, settings=settings).layers == ("0",)
