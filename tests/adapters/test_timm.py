"""timm's vision transformers: a stand-in in the fast tests, the library itself in the slow one."""

import sys

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import primal_attention as pa
from primal_attention.convert import convert_, load, plan, revert_, save

CLOSE = {"rtol": 1e-9, "atol": 1e-11}


class Attention(nn.Module):
    """The parts and the call of timm.layers.Attention."""

    def __init__(self, dim=16, num_heads=2, q_norm=None):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.q_norm, self.k_norm = q_norm or nn.Identity(), nn.Identity()
        self.attn_drop, self.proj_drop = nn.Dropout(0.2), nn.Dropout(0.1)
        self.norm = nn.Identity()
        self.proj = nn.Linear(dim, dim)

    def forward(self, x, attn_mask=None):
        heads = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(*heads, attn_mask=attn_mask)
        return self.proj_drop(self.proj(mixed.transpose(1, 2).flatten(2)))


@pytest.fixture(autouse=True)
def pretend(monkeypatch):
    monkeypatch.setattr(Attention, "__module__", "timm.layers.attention")


@pytest.mark.parametrize("weights", ["data", "tied"])
def test_stand_in(weights, awaken):
    torch.manual_seed(0)
    model = nn.Sequential(nn.ModuleDict({"attn": Attention()})).double().eval()
    attention = model[0]["attn"]
    x = torch.randn(2, 6, 16, dtype=torch.float64)
    before = attention(x)
    (row,) = plan(model, rank=3, weights=weights).changes
    assert row.settings["dropout"] == 0.2
    awaken(convert_(model, rank=3, weights=weights))
    new = model[0]["attn"]
    assert isinstance(new.proj_drop, nn.Dropout)
    visible = torch.ones(2, 1, 1, 6, dtype=torch.bool)
    visible[1, ..., 4:] = False
    assert_close(new(x, visible)[1, :4], new(x[1:, :4])[0], **CLOSE)
    assert_close(new(x, attn_mask=torch.zeros(6, 6)), new(x), **CLOSE)
    with pytest.raises(ValueError, match="single pairs"):
        new(x, torch.ones(6, 6).tril().bool())
    with pytest.raises(ValueError, match="is_causal is True"):
        new(x, is_causal=True)
    with pytest.raises(ValueError, match="both given"):
        new(x, visible, is_causal=True)
    model.train()
    (new(x).mean() + pa.ksvd_loss(model)).backward()
    revert_(model).eval()
    assert torch.equal(model[0]["attn"](x), before)


@pytest.mark.parametrize("weights", ["free", "tied"])
def test_causal(weights, awaken):
    torch.manual_seed(0)
    model = nn.Sequential(Attention()).double().eval()
    awaken(convert_(model, rank=3, causal=True, weights=weights))
    x = torch.randn(2, 6, 16, dtype=torch.float64)
    out = model[0](x, is_causal=True)
    assert_close(out, model[0](x, torch.ones(6, 6).tril().bool()), **CLOSE)
    assert_close(out[:, :4], model[0](x[:, :4], is_causal=True), **CLOSE)
    with pytest.raises(ValueError, match="is_causal is False; expected True"):
        model[0](x)


def test_normalised_heads_are_refused():
    model = nn.Sequential(Attention(q_norm=nn.LayerNorm(8)))
    with pytest.raises(ValueError, match="has a q_norm, LayerNorm"):
        plan(model)


def _timm():
    """timm imports torchvision, whose wheel wants two operators that exist in CUDA builds only."""
    if "torchvision" not in sys.modules:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _timm.library = library
    return pytest.importorskip("timm")


@pytest.mark.slow
def test_deit(awaken, tmp_path):
    timm = _timm()

    def build():
        torch.manual_seed(0)
        return timm.create_model(
            "deit_tiny_patch16_224", img_size=32, depth=2, embed_dim=48, num_heads=3
        ).eval()

    model, x = build(), torch.randn(2, 3, 32, 32)
    before = model(x)
    awaken(convert_(model, rank=8))
    after = model(x)
    assert not torch.equal(after, before)
    save(model, tmp_path)
    assert torch.equal(load(tmp_path, base=build())(x), after)
    model.train()
    (model(x).mean() + 0.05 * pa.ksvd_loss(model)).backward()
    assert torch.equal(revert_(model).eval()(x), before)
