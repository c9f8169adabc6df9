"""The encoder against torch's own layers with the same weights."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from primal_attention import make_attention
from primal_attention.models.encoder import Encoder, EncoderLayer
from primal_attention.models.feedforward import FeedForward
from primal_attention.models.packing import pack

MASK = torch.arange(7) >= torch.tensor([[7], [4], [2]])
PAIRS = [
    ("attention.", "self_attn."),
    ("feedforward.expand.", "linear1."),
    ("feedforward.reduce.", "linear2."),
    ("norm_attention.", "norm1."),
    ("norm_feedforward.", "norm2."),
]


def layer(norm, activation, dropout=0.0):
    act = nn.GELU() if activation == "gelu" else nn.ReLU()
    return EncoderLayer(
        make_attention("softmax", 8, 2, dropout=dropout, dtype=torch.float64),
        FeedForward(8, 16, activation=act, dropout=dropout, dtype=torch.float64),
        8,
        dropout=dropout,
        norm=norm,
        dtype=torch.float64,
    )


def torchs_layer(ours, norm, activation):
    theirs = nn.TransformerEncoderLayer(
        8, 2, 16, 0.0, activation,
        batch_first=True, norm_first=norm == "pre", dtype=torch.float64,
    )  # fmt: skip
    state = {}
    for name, value in ours.state_dict().items():
        mine, other = next(pair for pair in PAIRS if name.startswith(pair[0]))
        state[name.replace(mine, other)] = value
    theirs.load_state_dict(state)
    return theirs


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_same_as_torch(norm, activation):
    torch.manual_seed(0)
    ours = layer(norm, activation)
    for parameter in ours.parameters():
        nn.init.normal_(parameter, std=0.5)
    theirs = torchs_layer(ours, norm, activation)
    x = torch.randn(3, 7, 8, dtype=torch.float64)
    g = torch.randn(3, 7, 8, dtype=torch.float64).masked_fill(MASK.unsqueeze(-1), 0.0)
    expected = theirs(x, src_key_padding_mask=MASK)
    rows, packing = pack(x, MASK)
    out = packing.unpack(ours(rows, packing))
    assert_close(out, expected.masked_fill(MASK.unsqueeze(-1), 0.0))
    out.backward(g)
    expected.backward(g)
    assert_close(ours.feedforward.expand.weight.grad, theirs.linear1.weight.grad)
    assert_close(ours.norm_attention.weight.grad, theirs.norm1.weight.grad)
    assert_close(ours.attention.in_proj_weight.grad, theirs.self_attn.in_proj_weight.grad)


def test_last_norm():
    x = torch.randn(3, 7, 8, dtype=torch.float64)
    pre = Encoder([layer("pre", "gelu"), layer("pre", "gelu")], 8, dtype=torch.float64)
    out = pre(*pack(x, None))
    assert_close(out.mean(-1), torch.zeros(3, 7, dtype=torch.float64), rtol=0, atol=1e-9)
    assert len(list(pre.last_norm.parameters())) == 2
    post = Encoder([layer("post", "gelu")], 8, dtype=torch.float64)
    assert not list(post.last_norm.parameters())


def test_dropout_in_every_place():
    """Each alone makes two forwards differ, and no other drops anything."""
    torch.manual_seed(0)
    rows, packing = pack(torch.randn(1, 5, 8, dtype=torch.float64), None)
    one = layer("post", "gelu", dropout=0.5)
    places = [one.attention, one.dropout, one.feedforward.dropout]
    for place in places:
        for other in places:
            other.eval()
        assert torch.equal(one(rows, packing), one(rows, packing))
        place.train()
        assert not torch.equal(one(rows, packing), one(rows, packing))
