"""Every wrong call says what it got and what it wanted, and no mask or flag is dropped silently."""

import pytest
import torch
from torch import nn

from primal_attention import PrimalAttention, ksvd_loss, make_attention
from primal_attention.theory import PositiveRandomFeatures

KINDS = ["data-sample", "data-mean", "free", "tied", "free-causal", "tied-causal"]
CAUSAL = KINDS[4:]
every_kind = pytest.mark.parametrize("kind", KINDS)


# -- construction ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 0}, "rank is 0; expected .* at least 1"),
        ({"rank": -3}, "rank is -3; expected"),
        ({"rank": 2.5}, r"rank is 2\.5; expected an integer"),
        ({"rank": True}, "rank is True; expected an integer"),
        ({"num_heads": 0}, "num_heads is 0; expected"),
        ({"num_heads": 4}, "num_heads is 4; expected a divisor of embed_dim = 6"),
        ({"embed_dim": 0}, "embed_dim is 0; expected"),
        ({"rank_multi": 0}, "rank_multi is 0; expected"),
        ({"anchors": 0}, "anchors is 0; expected"),
        ({"anchors": -1}, "anchors is -1; expected"),
        ({"weights": "tide"}, "weights is 'tide'; expected one of 'data', 'free', 'tied'"),
        ({"anchor_rule": "max"}, "anchor_rule is 'max'; expected one of 'sample', 'mean', 'paper'"),
        ({"weights": "free", "anchors": 4}, "anchors is 4; expected None"),
        ({"weights": "tied", "anchors": 4}, "anchors is 4; expected None"),
        (
            {"weights": "data", "causal": True},
            'causal=True with weights="data".*expected weights="free" or "tied"',
        ),
        ({"dropout": 1.0}, r"dropout is 1\.0; expected"),
        ({"dropout": -0.1}, r"dropout is -0\.1; expected"),
        ({"dropout": float("nan")}, "dropout is nan; expected"),
        ({"feature_map": "sine"}, "unknown feature map 'sine'"),
        ({"feature_map": PositiveRandomFeatures(4)}, "head_dim = 4; expected 3"),
        (
            {"weights": "data", "feature_map": PositiveRandomFeatures(3, 8)},
            "8 features; .*expects head_dim = 3",
        ),
    ],
)
def test_options(options, message):
    arguments = {"embed_dim": 6, "num_heads": 2, "rank": 2, **options}
    with pytest.raises(ValueError, match=message):
        PrimalAttention(**arguments)


@pytest.mark.parametrize(("heads", "rank"), [(1, 4), (2, 2), (4, 1), (8, 1)])
def test_the_rank_has_a_default_below_the_width_of_a_head(heads, rank):
    layer = PrimalAttention(8, heads)
    assert layer.rank == make_attention("primal", 8, heads).rank == rank
    assert f"rank={rank}" in repr(layer)
    assert layer(torch.randn(2, 5, 8))[0].shape == (2, 5, 8)


# -- sequences -------------------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((6,), r"query has shape \(6,\); expected \(batch, length, 6\)"),
        ((1, 2, 3, 6), r"query has shape \(1, 2, 3, 6\); expected \(batch, length, 6\)"),
        ((2, 3, 5), "query has width 5; expected embed_dim = 6"),
        ((3, 7), "query has width 7; expected embed_dim = 6"),
        ((2, 0, 6), "query has length 0; expected at least one position"),
        ((0, 6), "query has length 0; expected at least one position"),
    ],
)
def test_shapes(kind, shape, message, make_layer):
    layer = make_layer(kind)
    x = torch.zeros(shape, dtype=torch.float64)
    with pytest.raises(ValueError, match=message):
        layer(x)
    with pytest.raises(ValueError, match=message):
        layer.ksvd_problem(x)


@every_kind
def test_an_empty_batch_is_no_error(kind, make_layer):
    """Without samples there is nothing to say; the last batch of a filter may be empty."""
    layer = make_layer(kind).eval()
    assert layer(torch.zeros(0, 3, 6, dtype=torch.float64))[0].shape == (0, 3, 6)


@every_kind
def test_dtype(kind, make_layer, make_rows):
    with pytest.raises(
        ValueError, match=r"query has dtype torch\.float32; expected torch\.float64"
    ):
        make_layer(kind)(make_rows(2, 3, 6, dtype=torch.float32))


@pytest.mark.parametrize("kind", KINDS[:4])
def test_key_and_value(kind, make_layer, make_rows):
    layer = make_layer(kind)
    x, y = make_rows(2, 3, 6), make_rows(2, 4, 6)
    with pytest.raises(ValueError, match=r"value differs from key.*expected value to be key"):
        layer(x, y, make_rows(2, 4, 6, seed=8))
    with pytest.raises(ValueError, match="value differs from key"):
        layer(x, None, y)
    with pytest.raises(ValueError, match="key has batch size 3; expected 2"):
        layer(x, make_rows(3, 4, 6))
    with pytest.raises(ValueError, match="key has 2 dimensions; expected 3"):
        layer(x, y[0])
    with pytest.raises(ValueError, match="key has width 5; expected embed_dim = 6"):
        layer(x, make_rows(2, 4, 5))
    with pytest.raises(ValueError, match="key has length 0; expected at least one position"):
        layer(x, make_rows(2, 0, 6))
    with pytest.raises(ValueError, match=r"key has dtype torch\.float32; expected torch\.float64"):
        layer(x, y.float())
    layer(x, y, y)  # as nn.TransformerDecoderLayer calls it
    layer(x, x, x)


@pytest.mark.parametrize("kind", CAUSAL)
def test_no_causal_cross_attention(kind, make_layer, make_rows):
    with pytest.raises(ValueError, match=r"causal layer .*expected self-attention"):
        make_layer(kind)(make_rows(2, 3, 6), make_rows(2, 3, 6, seed=3))


# -- masks -----------------------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize(
    ("mask", "error", "message"),
    [
        (torch.zeros(2, 4).bool(), ValueError, r"shape \(2, 4\); expected \(2, 3\)"),
        (torch.zeros(3, 2).bool(), ValueError, r"shape \(3, 2\); expected \(2, 3\)"),
        (torch.zeros(3).bool(), ValueError, r"shape \(3,\); expected \(2, 3\)"),
        (torch.zeros(2, 1).bool(), ValueError, r"shape \(2, 1\); expected \(2, 3\)"),
        (torch.zeros(2, 3, 1).bool(), ValueError, r"shape \(2, 3, 1\); expected \(2, 3\)"),
        (torch.zeros(2, 3).long(), TypeError, r"dtype torch\.int64; expected torch\.bool"),
        (torch.zeros(2, 3).byte(), TypeError, r"dtype torch\.uint8; expected torch\.bool"),
        (torch.full((2, 3), 0.5), ValueError, r"holds 0\.5; expected only 0 .* and -inf"),
        (torch.full((2, 3), -1e9), ValueError, r"holds -1000000000\.0; expected only 0"),
        (torch.full((2, 3), torch.nan), ValueError, "holds nan; expected only 0"),
        (torch.full((2, 3), torch.inf), ValueError, "holds inf; expected only 0"),
    ],
)
def test_key_padding_mask(kind, mask, error, message, make_layer, make_rows):
    layer, x = make_layer(kind), make_rows(2, 3, 6)
    for call in (layer, layer.ksvd_problem, layer.factors):
        with pytest.raises(error, match=f"key_padding_mask .*{message}"):
            call(x, key_padding_mask=mask)


def test_key_padding_mask_of_one_sequence_and_of_the_context(make_layer, make_rows):
    layer = make_layer("tied")
    with pytest.raises(ValueError, match=r"shape \(1, 3\); expected \(3,\)"):
        layer(make_rows(3, 6), key_padding_mask=torch.zeros(1, 3).bool())
    with pytest.raises(ValueError, match=r"shape \(2, 3\); expected \(2, 4\)"):
        layer(make_rows(2, 3, 6), make_rows(2, 4, 6), key_padding_mask=torch.zeros(2, 3).bool())


FUTURE = torch.ones(3, 3).triu(1)


@pytest.mark.parametrize("kind", KINDS[:4])
@pytest.mark.parametrize(
    "mask",
    [
        FUTURE.bool(),
        FUTURE.masked_fill(FUTURE.bool(), -torch.inf),
        torch.eye(3).bool(),
        torch.full((3, 3), 0.5),
        FUTURE.byte(),
        FUTURE.long(),
    ],
    ids=["causal", "causal float", "diagonal", "bias", "uint8", "int64"],
)
def test_attention_mask_of_a_layer_that_is_not_causal(kind, mask, make_layer, make_rows):
    with pytest.raises((ValueError, TypeError), match=r"attn_mask .*expected"):
        make_layer(kind)(make_rows(2, 3, 6), attn_mask=mask)


@pytest.mark.parametrize("kind", CAUSAL)
@pytest.mark.parametrize(
    "mask",
    [
        torch.zeros(3, 3).bool(),
        torch.ones(3, 3).tril(-1).bool(),
        FUTURE.bool() | torch.eye(3).bool(),
        FUTURE.masked_fill(FUTURE.bool(), -torch.inf) + 0.1,
        FUTURE.byte(),
        FUTURE.long(),
    ],
    ids=["nothing", "past", "diagonal too", "bias", "uint8", "int64"],
)
def test_attention_mask_of_a_causal_layer(kind, mask, make_layer, make_rows):
    with pytest.raises((ValueError, TypeError), match=r"attn_mask .*expected"):
        make_layer(kind)(make_rows(2, 3, 6), attn_mask=mask)


@every_kind
def test_attention_mask_shape(kind, make_layer, make_rows):
    layer, x = make_layer(kind), make_rows(2, 3, 6)
    for shape in ((4, 4), (3, 4), (2, 4, 4), (3,)):
        with pytest.raises(ValueError, match=r"attn_mask has shape .* expected \(3, 3\)"):
            layer(x, attn_mask=torch.zeros(shape).bool())


def test_masks_that_change_nothing_are_welcome(make_layer, make_rows):
    x = make_rows(2, 3, 6)
    for kind in KINDS:
        layer = make_layer(kind).eval()
        expected = layer(x)[0]
        mask = FUTURE.bool() if kind in CAUSAL else torch.zeros(3, 3).bool()
        as_float = torch.zeros(3, 3).masked_fill(mask, -torch.inf)
        for one in (mask, as_float, mask.expand(4, 3, 3)):
            assert torch.equal(layer(x, attn_mask=one)[0], expected)
        no_padding = torch.zeros(2, 3).bool()
        assert torch.allclose(layer(x, key_padding_mask=no_padding)[0], expected)
        if kind in CAUSAL:
            assert torch.equal(layer(x, attn_mask=mask, is_causal=True)[0], expected)
            assert torch.equal(layer(x, is_causal=True)[0], expected)


@pytest.mark.parametrize("kind", KINDS[:4])
def test_is_causal_of_a_layer_that_is_not(kind, make_layer, make_rows):
    with pytest.raises(ValueError, match=r"is_causal=True .*expected .*causal=True"):
        make_layer(kind)(make_rows(2, 3, 6), is_causal=True)


# -- the objective ---------------------------------------------------------------------------------


def test_objective(make_layer, make_rows):
    layer, x = make_layer("free"), make_rows(2, 3, 6)
    with pytest.raises(RuntimeError, match="no forward pass"):
        ksvd_loss(layer)
    layer.eval()(x)
    with pytest.raises(RuntimeError, match=r"eval mode, call model\.train\(\)"):
        ksvd_loss(layer)
    layer.train()(x)
    with pytest.raises(ValueError, match="reduction is 'median'; expected"):
        ksvd_loss(layer, "median")
    with pytest.raises(ValueError, match="positions is 'median'; expected"):
        ksvd_loss(layer, positions="median")
    with pytest.raises(ValueError, match="Linear contains no primal attention"):
        ksvd_loss(nn.Linear(2, 2))
    assert ksvd_loss(layer).isfinite()
