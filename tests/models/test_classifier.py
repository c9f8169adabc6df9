"""The classifier's options, and what it refuses."""

import copy

import pytest
import torch

from primal_attention import PrimalAttention, SoftmaxAttention, ksvd_loss


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
    model = make_model(attention_options={"primal": {"rank": 5, "rank_multi": multi}})
    assert {layer.attention.anchors for layer in model.encoder.layers} == {anchors}


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
    with pytest.raises(ValueError, match="True = ignore"):
        model(inputs, padding.long())
    with pytest.raises(ValueError, match="at most max_length = 9"):
        model(make_batch(lengths=(10,), length=10)[0])
    with pytest.raises(ValueError, match="at least one position"):
        model(inputs[:, :0])
    with pytest.raises(ValueError, match="expected tokens"):
        make_model(tokens=True)(inputs)
