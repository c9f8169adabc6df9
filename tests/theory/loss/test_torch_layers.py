"""torch's own Transformer layers with our attention in the place of theirs."""

from itertools import product

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import primal_attention as pa

from ...pairs import pairwise

WIDTH, HEADS = 8, 2
CLOSE = {"rtol": 1e-9, "atol": 1e-11}
ENCODERS = [{"weights": "data", "anchors": 5}, {"weights": "free"}, {"weights": "tied"}]
CAUSAL = [{"weights": "free", "causal": True}, {"weights": "tied", "causal": True}]


def weights_of(kind):
    return kind["weights"]


def attention(kind, batch_first):
    return pa.PrimalAttention(
        WIDTH, HEADS, rank=2, batch_first=batch_first, dtype=torch.float64, **kind
    )


@pytest.fixture
def encoder_layer():
    def make(kind, norm_first, batch_first):
        torch.manual_seed(1)
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 16, 0.0, norm_first=norm_first, batch_first=batch_first
        ).double()
        layer.self_attn = attention(kind, batch_first)
        return layer

    return make


@pytest.fixture
def decoder_layer():
    def make(kind, cross, norm_first, batch_first):
        torch.manual_seed(1)
        layer = nn.TransformerDecoderLayer(
            WIDTH, HEADS, 16, 0.0, norm_first=norm_first, batch_first=batch_first
        ).double()
        layer.self_attn = attention(kind, batch_first)
        layer.multihead_attn = attention(cross, batch_first)
        return layer

    return make


def encoder_block(layer, x, mask):
    """The encoder layer by hand; x (B, N, d)."""

    def attend(h):
        h = h if layer.self_attn.batch_first else h.transpose(0, 1)
        out, _ = layer.self_attn(h, key_padding_mask=mask)
        return out if layer.self_attn.batch_first else out.transpose(0, 1)

    def feed(h):
        return layer.linear2(layer.linear1(h).relu())

    if layer.norm_first:
        x = x + attend(layer.norm1(x))
        return x + feed(layer.norm2(x))
    x = layer.norm1(x + attend(x))
    return layer.norm2(x + feed(x))


def decoder_block(layer, x, memory):
    def turned(tensor):
        return tensor if layer.self_attn.batch_first else tensor.transpose(0, 1)

    def attend(h):
        return turned(layer.self_attn(turned(h))[0])

    def cross(h):
        return turned(layer.multihead_attn(turned(h), turned(memory))[0])

    def feed(h):
        return layer.linear2(layer.linear1(h).relu())

    if layer.norm_first:
        x = x + attend(layer.norm1(x))
        x = x + cross(layer.norm2(x))
        return x + feed(layer.norm3(x))
    x = layer.norm1(x + attend(x))
    x = layer.norm2(x + cross(x))
    return layer.norm3(x + feed(x))


def calls_of(module, counts):
    module.register_forward_hook(lambda *_: counts.append(1))


MODES = {
    "train": lambda model: (model.train(), torch.enable_grad())[1],
    "eval": lambda model: (model.eval(), torch.enable_grad())[1],
    "no_grad": lambda model: (model.eval(), torch.no_grad())[1],
    "inference_mode": lambda model: (model.eval(), torch.inference_mode())[1],
}


@pairwise(kind=ENCODERS, mode=MODES, norm_first=[True, False], batch_first=[True, False])
def test_encoder_layer(kind, norm_first, batch_first, mode, encoder_layer, randn):
    layer, x = encoder_layer(kind, norm_first, batch_first), randn(3, 7, WIDTH)
    mask = torch.zeros(3, 7, dtype=torch.bool)
    mask[1, 4:], mask[2, 1:] = True, True
    calls = []
    calls_of(layer.self_attn, calls)
    with MODES[mode](layer):
        given = x if batch_first else x.transpose(0, 1)
        found = layer(given, src_key_padding_mask=mask)
        assert len(calls) == 1
        found = found if batch_first else found.transpose(0, 1)
        assert_close(found, encoder_block(layer, x, mask), **CLOSE)
        alone = x[1:2, :4] if batch_first else x[1:2, :4].transpose(0, 1)
        alone = layer(alone) if batch_first else layer(alone).transpose(0, 1)
        assert_close(found[1, :4], alone[0], **CLOSE)


@pairwise(kind=ENCODERS, mode__nested=[*product(MODES, [True, False])], batch_first=[True, False])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
def test_encoder(kind, batch_first, nested, mode, encoder_layer, randn):
    layer = encoder_layer(kind, False, batch_first)
    model, x = nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested), randn(3, 7, WIDTH)
    mask = torch.zeros(3, 7, dtype=torch.bool)
    mask[1, 4:], mask[2, 1:] = True, True
    calls = []
    for block in model.layers:
        calls_of(block.self_attn, calls)
    with MODES[mode](model):
        found = model(x if batch_first else x.transpose(0, 1), src_key_padding_mask=mask)
        found = found if batch_first else found.transpose(0, 1)
        assert len(calls) == 2
        expected = x
        for block in model.layers:
            expected = encoder_block(block, expected, mask)
        assert found.shape == x.shape
        assert_close(found[~mask], expected[~mask], **CLOSE)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ENCODERS + CAUSAL, ids=str)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_an_encoder_whose_attention_is_replaced_afterwards(kind, mode, randn):
    """TransformerEncoder decides when it is built that it will send nested tensors in inference."""
    plain = nn.TransformerEncoderLayer(WIDTH, HEADS, 16, 0.0, batch_first=True).double()
    model, x = nn.TransformerEncoder(plain, 2), randn(3, 7, WIDTH)
    assert model.use_nested_tensor
    for block in model.layers:
        block.self_attn = attention(kind, True)
    mask = torch.zeros(3, 7, dtype=torch.bool)
    mask[1, 4:], mask[2, 1:] = True, True
    expected = x
    for block in model.layers:
        expected = encoder_block(block, expected, mask)
    calls = []
    for block in model.layers:
        calls_of(block.self_attn, calls)
    with MODES[mode](model):
        found = model(x, src_key_padding_mask=mask)
    assert len(calls) == 2
    assert found.shape == x.shape
    assert_close(found[~mask], expected[~mask].detach(), **CLOSE)


@pytest.mark.parametrize("mode", ["eval", "no_grad", "inference_mode"])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_folded_encoder(mode, randn):
    plain = nn.TransformerEncoderLayer(WIDTH, HEADS, 16, 0.0, batch_first=True).double()
    model, x = nn.TransformerEncoder(plain, 2), randn(3, 7, WIDTH)
    for block in model.layers:
        block.self_attn = attention({"weights": "free"}, True)
    mask = torch.zeros(3, 7, dtype=torch.bool)
    mask[1, 4:], mask[2, 1:] = True, True
    with MODES[mode](model):
        expected = model(x, src_key_padding_mask=mask)
        found = pa.fold_(model)(x, src_key_padding_mask=mask)
    assert_close(found[~mask], expected[~mask], **CLOSE)


@pytest.mark.parametrize("kind", CAUSAL, ids=weights_of)
@pytest.mark.parametrize("mode", MODES)
def test_causal_encoder_sees_no_future(kind, mode, encoder_layer, randn):
    model = nn.TransformerEncoder(encoder_layer(kind, True, True), 2, enable_nested_tensor=False)
    x = randn(2, 9, WIDTH)
    changed = x.clone()
    changed[:, 6:] = randn(2, 3, WIDTH)
    future = nn.Transformer.generate_square_subsequent_mask(9, dtype=torch.float64)
    with MODES[mode](model):
        found = model(x, mask=future, is_causal=True)
        assert torch.equal(found[:, :6], model(changed, mask=future, is_causal=True)[:, :6])
        assert not torch.equal(found[:, 6:], model(changed, mask=future)[:, 6:])


@pairwise(kind=CAUSAL, mode=MODES, norm_first=[True, False], batch_first=[True, False])
def test_decoder_layer(kind, norm_first, batch_first, mode, decoder_layer, randn):
    layer = decoder_layer(kind, {"weights": "tied"}, norm_first, batch_first)
    x, memory = randn(2, 6, WIDTH), randn(2, 9, WIDTH)
    calls = []
    calls_of(layer.self_attn, calls)
    calls_of(layer.multihead_attn, calls)
    future = nn.Transformer.generate_square_subsequent_mask(6, dtype=torch.float64)

    def turned(tensor):
        return tensor if batch_first else tensor.transpose(0, 1)

    with MODES[mode](layer):
        found = layer(turned(x), turned(memory), tgt_mask=future, tgt_is_causal=True)
        assert len(calls) == 2
        assert_close(turned(found), decoder_block(layer, x, memory), **CLOSE)


@pairwise(kind=CAUSAL, cross=ENCODERS, mode=MODES)
def test_decoder_sees_no_future_and_no_padding(kind, cross, mode, decoder_layer, randn):
    model = nn.TransformerDecoder(decoder_layer(kind, cross, True, True), 2)
    x, memory = randn(2, 9, WIDTH), randn(2, 7, WIDTH)
    mask = torch.zeros(2, 7, dtype=torch.bool)
    mask[:, 5:] = True
    future = nn.Transformer.generate_square_subsequent_mask(9, dtype=torch.float64)
    changed = x.clone()
    changed[:, 4:] = randn(2, 5, WIDTH)
    options = {"tgt_mask": future, "memory_key_padding_mask": mask}
    with MODES[mode](model):
        found = model(x, memory, **options)
        assert torch.equal(found[:, :4], model(changed, memory, **options)[:, :4])
        alone = model(x, memory[:, :5], tgt_mask=future)
        assert_close(found, alone, **CLOSE)
        if cross["weights"] != "free":  # free weights do not see the context, and say so
            other = model(x, memory + 1.0, **options)
            assert not torch.allclose(found, other)


def test_the_loss_finds_the_layers_inside(encoder_layer, decoder_layer, randn):
    encoder = nn.TransformerEncoder(
        encoder_layer({"weights": "data", "anchors": 4}, True, True), 2, enable_nested_tensor=False
    )
    kind = {"weights": "tied", "causal": True}
    decoder = nn.TransformerDecoder(decoder_layer(kind, {"weights": "tied"}, True, True), 2)
    model = nn.ModuleList([encoder, decoder])
    x, y = randn(2, 6, WIDTH), randn(2, 5, WIDTH)
    future = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
    out = decoder(y, encoder(x), tgt_mask=future, tgt_is_causal=True)
    loss = pa.ksvd_loss(model, "sum")
    assert_close(loss, pa.ksvd_loss(encoder, "sum") + pa.ksvd_loss(decoder, "sum"), **CLOSE)
    (out.square().mean() + loss).backward()
    assert all(p.grad is not None for p in model.parameters())


def test_a_mask_that_cannot_be_honoured_is_refused(encoder_layer, randn):
    layer = encoder_layer({"weights": "free"}, False, True).eval()
    future = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
    with torch.no_grad(), pytest.raises(ValueError, match="attn_mask hides"):
        layer(randn(2, 5, WIDTH), src_mask=future)
