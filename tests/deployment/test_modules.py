"""Building, moving, saving and loading layers."""

import copy
import io

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import primal_attention as pa


@pytest.fixture
def other_maps():
    return [
        {"weights": "free", "feature_map": "exp"},
        {"weights": "tied", "feature_map": "exp"},
        {"weights": "tied", "causal": True, "feature_map": "exp"},
    ]


def test_state_dict_round_trip(kind, make_model, batch):
    model = make_model(kind)
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    buffer.seek(0)
    stored = torch.load(buffer, weights_only=True)
    other = make_model(kind)
    with torch.no_grad():
        for tensor in (*other.parameters(), *other.buffers()):
            tensor.normal_()
    args = batch(3, 9)
    assert not torch.allclose(other(*args), model(*args))
    other.load_state_dict(stored)
    assert torch.equal(other(*args), model(*args))


def test_state_dict_with_random_features(other_maps, batch):
    x, mask = batch(3, 9)
    for options in other_maps:
        a, b = (pa.PrimalAttention(8, 2, rank=2, **options).eval() for _ in range(2))
        with torch.no_grad():
            a.feature_map.directions.mul_(0.5)  # not what the seed would give
        b.load_state_dict(a.state_dict())
        assert torch.equal(a(x, key_padding_mask=mask)[0], b(x, key_padding_mask=mask)[0])


@pytest.mark.parametrize("how", ["argument", "context"])
def test_meta_device(unfolded, how, make_model, batch):
    real = make_model(unfolded)
    if how == "argument":
        empty = make_model(unfolded, device="meta")
    else:
        with torch.device("meta"):
            empty = make_model(unfolded)
    assert all(t.is_meta for t in (*empty.parameters(), *empty.buffers()))
    empty.to_empty(device="cpu")
    empty.load_state_dict(real.state_dict())
    args = batch(3, 9)
    assert torch.equal(empty(*args), real(*args))
    empty.train()
    empty(*args).sum().backward()


def test_meta_device_then_reset(unfolded, make_model, batch):
    torch.manual_seed(2)
    layer = make_model(unfolded, device="meta").layer.to_empty(device="cpu")
    with torch.no_grad():
        for tensor in (*layer.parameters(), *layer.buffers()):
            tensor.fill_(torch.nan)
    torch.manual_seed(4)
    layer.reset_parameters()
    assert all(t.isfinite().all() for t in (*layer.parameters(), *layer.buffers()))
    if layer.weights != "tied":
        for head in (*layer.w_e, *layer.w_r):
            eye = torch.eye(layer.rank)
            assert_close(head.T @ head, eye, rtol=1e-5, atol=1e-5)
    assert layer.sqrt_lambda.min() >= 0
    assert layer.sqrt_lambda.max() <= 1
    assert layer(batch(2, 5)[0])[0].isfinite().all()


def test_meta_forward_gives_shapes(unfolded, make_model):
    layer = make_model(unfolded, device="meta").layer
    assert layer(torch.empty(3, 9, 8, device="meta"))[0].shape == (3, 9, 8)


def test_reset_reaches_the_feature_map(other_maps):
    for options in other_maps:
        layer = pa.PrimalAttention(8, 2, rank=2, device="meta", **options).to_empty(device="cpu")
        fresh = pa.PrimalAttention(8, 2, rank=2, **options)
        for module in layer.modules():  # the usual way after to_empty
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()
        assert torch.equal(layer.feature_map.directions, fresh.feature_map.directions)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtype_argument(kind, dtype, make_model, batch):
    model = make_model(kind, dtype=dtype)
    assert {t.dtype for t in (*model.parameters(), *model.buffers())} == {dtype}
    x, mask = batch(3, 9, dtype)
    out = model(x, mask)
    assert out.dtype == dtype
    assert out.isfinite().all()
    reference = copy.deepcopy(model).double()
    assert_close(out.double(), reference(x.double(), mask), rtol=0.05, atol=0.05)


def test_dtype_may_change_later(kind, make_model, batch):
    model = make_model(kind).to(torch.float64)
    x, mask = batch(3, 9, torch.float64)
    assert model(x, mask).dtype == torch.float64
    with pytest.raises(ValueError, match=r"dtype torch.float32; expected torch.float64"):
        model(x.float(), mask)


def test_device_argument(make_model):
    assert make_model("data", device="cpu").layer.w_e.device.type == "cpu"
    with pytest.raises(RuntimeError):
        make_model("data", device="no such device")


def test_inference_mode(kind, make_model, batch):
    model = make_model(kind)
    args = batch(3, 9)
    expected = model(*args).detach()
    with torch.inference_mode():
        found = model(*args)
    assert found.is_inference()
    assert_close(found, expected)
    assert_close(model(*args), expected)  # nothing of inference mode is left behind
    trained = model(args[0].requires_grad_(), args[1])
    if trained.requires_grad:
        trained.sum().backward()


def test_first_used_in_inference_mode(make_model, batch):
    """What is remembered between calls must not have been made as an inference tensor."""
    model = make_model("data").train()
    x, _ = batch(2, 23)
    with torch.inference_mode():
        model(x)
    loss = model(x).sum() + pa.ksvd_loss(model)
    loss.backward()
    assert model.layer.w_e.grad.isfinite().all()


def test_deepcopy_and_parameters_to_vector(kind, make_model, batch):
    model = make_model(kind)
    twin = copy.deepcopy(model)
    args = batch(3, 9)
    expected = model(*args)
    with torch.no_grad():
        nn.utils.vector_to_parameters(
            torch.zeros_like(nn.utils.parameters_to_vector(model.parameters())), model.parameters()
        )
    assert torch.equal(twin(*args), expected)


def test_unfolded_weights_do_not_load_into_a_folded_layer(make_model):
    folded, layer = make_model("folded scores"), make_model("free")
    with pytest.raises(RuntimeError, match="folded_projections"):
        layer.load_state_dict(folded.state_dict())
