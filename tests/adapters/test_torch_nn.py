"""torch's encoder and decoder layers, and bare nn.MultiheadAttention."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import primal_attention as pa
from primal_attention.convert import convert_, converted_layers, revert_

CLOSE = {"rtol": 1e-9, "atol": 1e-11}
WIDTH, LENGTH, SHORT = 16, 6, 4
CAUSAL = nn.Transformer.generate_square_subsequent_mask(LENGTH, dtype=torch.float64)
PADDING = torch.arange(LENGTH) >= torch.tensor([[LENGTH], [SHORT]])
WEIGHTS = ["data", "free", "tied"]


@pytest.fixture
def x():
    return torch.randn(2, LENGTH, WIDTH, dtype=torch.float64)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("norm_first", [False, True])
def test_padding_changes_nothing(x, weights, norm_first, awaken):
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 24, batch_first=True, norm_first=norm_first)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).double().eval()
    awaken(convert_(model, layers="all", rank=3, weights=weights))
    together = model(x, src_key_padding_mask=PADDING)
    alone = model(x[1:, :SHORT])
    assert_close(together[1:, :SHORT], alone, **CLOSE)
    noise = torch.where(PADDING.unsqueeze(-1), 100.0, x)
    assert_close(model(noise, src_key_padding_mask=PADDING)[1, :SHORT], alone[0], **CLOSE)


def test_nested_tensors_of_the_fast_path(x, awaken):
    """A torch encoder whose first layer is its own packs a padded batch in inference."""
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 24, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).double().eval()
    awaken(convert_(model, rank=3, weights="tied"))
    slow = model(x, src_key_padding_mask=PADDING)
    with torch.no_grad():
        fast = model(x, src_key_padding_mask=PADDING)
    assert_close(fast[1, :SHORT], slow[1, :SHORT], **CLOSE)
    assert_close(fast[0], slow[0], **CLOSE)
    assert not fast[1, SHORT:].any()  # so it was packed indeed


@pytest.mark.parametrize("weights", ["free", "tied"])
@pytest.mark.parametrize("batch_first", [False, True])
def test_decoder(x, weights, batch_first, awaken):
    """Causal self-attention by default, cross-attention on request; padding on both sides."""
    layer = nn.TransformerDecoderLayer(WIDTH, 2, 24, batch_first=batch_first)
    model = nn.TransformerDecoder(layer, 2).double().eval()
    awaken(convert_(model, layers="all", cross=True, rank=3, weights=weights))
    assert len(converted_layers(model)) == 4
    memory, hidden = torch.randn(2, 5, WIDTH, dtype=torch.float64), torch.zeros(2, 5).bool()
    hidden[1, 3:] = True

    def run(x, memory, mask=CAUSAL, **padding):
        order = (lambda t: t) if batch_first else (lambda t: t.transpose(0, 1))
        return order(model(order(x), order(memory), tgt_mask=mask, **padding))

    together = run(x, memory, tgt_key_padding_mask=PADDING, memory_key_padding_mask=hidden)
    alone = run(x[1:, :SHORT], memory[1:, :3], CAUSAL[:SHORT, :SHORT])
    assert_close(together[1:, :SHORT], alone, **CLOSE)
    changed = torch.cat([x[:, :3], torch.randn_like(x[:, 3:])], 1)
    assert_close(run(changed, memory)[:, :3], run(x, memory)[:, :3], **CLOSE)
    with pytest.raises(ValueError, match="without the causal mask"):
        run(x, memory, None)
    assert (model.layers[0].multihead_attn.primal.causal, weights) == (False, weights)


def test_a_causal_encoder(x, encoder, awaken):
    awaken(convert_(encoder, rank=3, weights="tied", causal=True))
    out = encoder(x, mask=CAUSAL, is_causal=True)
    assert_close(out, encoder(x, mask=CAUSAL.isinf()), **CLOSE)
    assert_close(encoder(x[:, :3], mask=CAUSAL[:3, :3]), out[:, :3], **CLOSE)
    with pytest.raises(ValueError, match="without the causal mask"):
        encoder(x)


def test_masks_that_hide_pairs_are_refused(x, encoder):
    convert_(encoder, rank=3)
    with pytest.raises(ValueError, match="single pairs"):
        encoder(x, mask=CAUSAL, is_causal=False)
    window = torch.ones(LENGTH, LENGTH).triu(2).bool()
    with pytest.raises(ValueError, match="single pairs"):
        encoder(x, mask=window)


def test_a_mask_of_whole_keys_is_padding(x, encoder, awaken):
    awaken(convert_(encoder, layers="all", rank=3))
    columns = PADDING[1].expand(LENGTH, LENGTH)
    heads = columns.expand(4, LENGTH, LENGTH)
    expected = encoder(x, src_key_padding_mask=PADDING[1].expand(2, -1))[:, :SHORT]
    assert_close(encoder(x, mask=columns)[:, :SHORT], expected, **CLOSE)
    assert_close(encoder(x, mask=heads)[:, :SHORT], expected, **CLOSE)


class Bare(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 2, **options)

    def forward(self, query, *others, **masks):
        return self.attention(query, *(others or (query, query)), need_weights=False, **masks)[0]


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("bias", [False, True])
def test_bare_attention(x, weights, bias, awaken):
    model = Bare(bias=bias, batch_first=True).double().eval()
    before = model(x)
    awaken(convert_(model, rank=3, weights=weights))
    together = model(x, key_padding_mask=PADDING)
    assert_close(together[1:, :SHORT], model(x[1:, :SHORT]), **CLOSE)
    assert_close(together[1], model(x[1], key_padding_mask=PADDING[1]), **CLOSE)  # unbatched
    context = torch.randn(2, 4, WIDTH, dtype=torch.float64)
    assert model(x, context, context).shape == x.shape
    with pytest.raises(ValueError, match="value differs from key"):
        model(x, context, context + 1)
    with pytest.raises(ValueError, match="need_weights=True"):
        model.attention(x, x, x, need_weights=True)
    assert torch.equal(revert_(model)(x), before)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_training_step_with_ksvd_loss(x, encoder, weights):
    convert_(encoder, layers="all", rank=3, weights=weights)
    encoder.train()
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
    before = [layer.primal.sqrt_lambda.detach().clone() for layer in converted_layers(encoder)]
    out = encoder(x, src_key_padding_mask=PADDING)
    (out[~PADDING].square().mean() + 0.1 * pa.ksvd_loss(encoder)).backward()
    optimizer.step()
    for layer, old in zip(converted_layers(encoder), before, strict=True):
        assert not torch.equal(layer.primal.sqrt_lambda, old)
        assert layer.primal.concat.weight.any()
