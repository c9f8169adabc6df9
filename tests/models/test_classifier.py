"""The classifier's options, and what it refuses."""

import copy

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from primal_attention import PrimalAttention, SoftmaxAttention, ksvd_loss
from primal_attention.models import SequenceClassifier


def test_one_name_per_layer(make_model):
    model = make_model(attention=("softmax", "primal"))
    kinds = [type(layer.attention) for layer in model.encoder.layers]
    assert kinds == [SoftmaxAttention, PrimalAttention]


def test_options_belong_to_names(make_model):
    options = {"primal": {"rank": 5, "weights": "free"}}
    model = make_model(attention=("softmax", "primal"), attention_options=options, dropout=0.3)
    softmax, primal = (layer.attention for layer in model.encoder.layers)
    assert (primal.rank, primal.weights, primal.dropout) == (5, "free", 0.3)
    assert softmax.dropout == 0.3
    options = {"primal": {"rank": 5, "dropout": 0.0}}
    model = make_model(attention_options=options, dropout=0.3)
    assert {layer.attention.dropout for layer in model.encoder.layers} == {0.0}


@pytest.mark.parametrize(("multi", "anchors"), [(10, 9), (1, 5)])
def test_no_more_anchors_than_positions(make_model, multi, anchors):
    model = make_model(
        attention_options={"primal": {"rank": 5, "weights": "data", "rank_multi": multi}}
    )
    assert {layer.attention.anchors for layer in model.encoder.layers} == {anchors}


def test_options_are_not_changed(make_model):
    options = {"primal": {"rank": 2}}
    make_model(attention_options=options)
    assert options == {"primal": {"rank": 2}}


def test_with_data_weights_the_default_is_the_papers_encoder():
    model = SequenceClassifier(
        classes=9, channels=12, max_length=29, head="flatten", device="meta",
        attention_options={"primal": {"rank": 40, "weights": "data"}},
    )  # fmt: skip
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    assert shapes["embedding.weight"] == (512, 12)
    assert shapes["positions.table"] == (29, 512)
    assert shapes["encoder.layers.1.attention.in_proj_weight"] == (1024, 512)
    assert shapes["encoder.layers.1.attention.w_e"] == (8, 29, 40)  # min(s * rank_multi, N) anchors
    assert shapes["encoder.layers.1.feedforward.expand.weight"] == (2048, 512)
    assert shapes["head.output.weight"] == (9, 29 * 512)
    assert [layer.norm for layer in model.encoder.layers] == ["post", "post"]
    assert isinstance(model.encoder.layers[0].feedforward.activation, torch.nn.GELU)


@pytest.mark.parametrize("options", [None, {}, {"primal": {"bias": False}}])
def test_the_rank_has_a_default(options):
    model = SequenceClassifier(
        classes=3, channels=2, max_length=9, attention_options=options, device="meta"
    )
    assert [layer.attention.rank for layer in model.encoder.layers] == [20, 20]


def test_series_are_scaled(make_model):
    embedding = make_model().embedding
    x = torch.randn(5, 3, dtype=torch.float64)
    assert_close(embedding(x), F.linear(x, embedding.weight, embedding.bias) * 8**0.5)


def test_tokens_start_with_unit_variance():
    model = SequenceClassifier(
        classes=2, vocabulary=500, max_length=4, attention=("softmax",), width=64, feedforward=8
    )
    rows = model.embedding(torch.arange(500))
    assert 0.95 < rows.std() < 1.05
    assert torch.equal(rows, model.embedding.weight * 8)


@pytest.mark.parametrize("tokens", [False, True], ids=["series", "tokens"])
@pytest.mark.parametrize("head", ["mean", "flatten"])
def test_positions_alone_tell_an_order(tokens, head, make_model, make_batch):
    """With softmax and a mean nothing else does."""
    inputs, _ = make_batch(tokens=tokens, lengths=(9, 9))
    for positions in ("none", "learned", "sinusoidal"):
        options = {"attention": ("softmax",), "tokens": tokens, "head": head}
        model = make_model(positions=positions, **options).eval()
        same = torch.allclose(model(inputs), model(inputs.flip(1)))
        assert same == (positions == "none" and head == "mean")


def test_an_empty_batch(make_model, make_batch):
    inputs, padding = make_batch()
    assert make_model()(inputs[:0], padding[:0]).shape == (0, 4)


def test_device_and_dtype(make_model):
    model = make_model(positions="sinusoidal", norm="pre", device="meta", dtype=torch.bfloat16)
    tensors = [*model.parameters(), model.positions.table]
    assert {(t.device.type, t.dtype) for t in tensors} == {("meta", torch.bfloat16)}


def test_half_precision(make_model, make_batch):
    model = make_model(dtype=torch.float32).eval()
    inputs, padding = make_batch(dtype=torch.float32)
    logits = copy.deepcopy(model).bfloat16()(inputs.bfloat16(), padding)
    assert logits.dtype == torch.bfloat16
    assert_close(logits.float(), model(inputs, padding), rtol=0.1, atol=0.1)


def test_autocast(make_model, make_batch):
    model = make_model(dtype=torch.float32).train()
    inputs, padding = make_batch(dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(inputs, padding).float().square().sum() + ksvd_loss(model)
    loss.backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


def test_copies_and_states(make_model, make_batch):
    model, other = make_model().eval(), make_model(seed=5).eval()
    args = make_batch()
    assert not torch.equal(other(*args), model(*args))
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(*args), model(*args))
    assert torch.equal(copy.deepcopy(model)(*args), model(*args))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"head": "mea"}, r"head is 'mea' \(did you mean 'mean'\?\)"),
        ({"norm": "both"}, "norm is 'both'; expected one of 'post', 'pre'"),
        ({"positions": "learnt"}, r"'learnt' \(did you mean 'learned'\?\)"),
        ({"attention": "primal"}, "attention is 'primal'; expected one name per layer"),
        ({"attention": ()}, "expected one name per layer"),
        ({"channels": None}, "expected exactly one of them"),
        ({"width": 0}, "width is 0"),
        ({"attention_options": {"prmal": {}}}, r"'prmal' \(did you mean 'primal'\?\)"),
        ({"attention_options": {"primal": {"rank": 3, "batch_first": False}}}, "batch_first"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"vocabulary": 5}, "channels is 3 and vocabulary is 5; expected exactly one of them"),
        ({"attention": ("primel",)}, r"unknown attention 'primel' \(did you mean 'primal'\?\)"),
        ({"attention_options": {"softmax": {}}}, "a key of attention_options is 'softmax'"),
        ({"attention_options": {"primal": {"rnk": 2}}}, r"\(did you mean 'rank'\?\)"),
        ({"attention_options": {"primal": {"rank": "2"}}}, "rank is '2'; expected an integer"),
        ({"activation": "tanh"}, "activation is 'tanh'; expected one of 'gelu', 'relu'"),
        ({"max_length": 2.5}, "max_length is 2.5; expected an integer"),
        ({"heads": 3}, "num_heads is 3; expected a divisor of embed_dim = 8"),
    ],
)
def test_wrong_options(make_model, options, message):
    with pytest.raises(ValueError, match=message):
        make_model(**options)


def test_wrong_inputs(make_model, make_batch):
    model = make_model()
    inputs, padding = make_batch()
    with pytest.raises(ValueError, match="channels = 3"):
        model(inputs[..., :2])
    with pytest.raises(ValueError, match=r"channels = 3\) of torch.float64"):
        model(inputs.float())
    for wrong in (padding.long(), padding[:, :-1], padding[0]):
        with pytest.raises(ValueError, match=r"expected \(5, 9\), torch.bool \(True = ignore\)"):
            model(inputs, wrong)
    with pytest.raises(ValueError, match="at most max_length = 9"):
        model(make_batch(lengths=(10,), length=10)[0])
    with pytest.raises(ValueError, match="at least one position"):
        model(inputs[:, :0])
    with pytest.raises(ValueError, match="expected tokens"):
        make_model(tokens=True)(inputs)


@pytest.mark.parametrize("tokens", [True, False])
def test_pairs_are_encoded_one_by_one(tokens, make_model, make_batch):
    model = make_model(tokens=tokens, head="mlp", pairs=True).eval()
    inputs, padding = make_batch(tokens=tokens, lengths=(9, 4, 1, 7))
    pairs, mask = inputs.unflatten(0, (2, 2)), padding.unflatten(0, (2, 2))
    together = model(pairs, mask)
    assert together.shape == (2, 4)
    swapped = model(pairs.flip(1), mask.flip(1))
    assert not torch.allclose(together, swapped)
    first = model(pairs[1:, :, :7], mask[1:, :, :7])  # alone, and with less padding
    assert_close(first[0], together[1])


def test_pairs_have_their_shape_and_head(make_model, make_batch):
    with pytest.raises(ValueError, match="head is 'mean'; expected 'mlp'"):
        make_model(pairs=True)
    model = make_model(tokens=True, head="mlp", pairs=True)
    inputs, padding = make_batch(tokens=True, lengths=(9, 4))
    with pytest.raises(ValueError, match="expected pairs of sequences"):
        model(inputs, padding)
    with pytest.raises(ValueError, match=r"padding is .*expected \(1, 2, 9\)"):
        model(inputs[None], padding)
