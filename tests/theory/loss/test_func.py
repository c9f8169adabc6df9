"""Function transforms (torch.func) of a training forward."""

import pytest
import torch
from torch.func import functional_call, grad, vmap
from torch.testing import assert_close

import primal_attention as pa

CLOSE = {"rtol": 1e-9, "atol": 1e-11}


@pytest.fixture
def parameters():
    def take(model):
        return {name: p.detach() for name, p in model.named_parameters()}

    return take


def test_functional_call(kind, make_encoder, parameters, gradients, randn):
    model, x = make_encoder(kind), randn(2, 5, 8)
    (model(x).square().mean() + pa.ksvd_loss(model)).backward()
    expected = gradients(model)
    given = {name: p.requires_grad_() for name, p in parameters(model).items()}
    out = functional_call(model, given, (x,))
    (out.square().mean() + pa.ksvd_loss(model)).backward()
    assert_close({name: p.grad for name, p in given.items()}, expected, **CLOSE)
    assert all(p.grad is None for p in model.parameters())


def test_grad(kind, make_encoder, parameters, gradients, held, randn):
    model, x = make_encoder(kind), randn(2, 5, 8)
    (model(x).square().mean() + pa.ksvd_loss(model)).backward()
    expected = gradients(model)

    def loss(values):
        out = functional_call(model, values, (x,))
        return out.square().mean() + pa.ksvd_loss(model)

    for _ in range(2):
        assert_close(grad(loss)(parameters(model)), expected, **CLOSE)
    with pytest.raises(RuntimeError, match="no forward pass"):  # not the dead ones of the transform
        pa.ksvd_loss(model)
    (model(x).square().mean() + pa.ksvd_loss(model)).backward()
    assert_close(gradients(model), expected, **CLOSE)
    assert [held(layer) for layer in model.layers] == [0, 0]


def test_gradients_per_sample(kind, make_encoder, parameters, gradients, randn):
    model, x = make_encoder(kind), randn(3, 5, 8)

    def loss(values, row):
        out = functional_call(model, values, (row.unsqueeze(0),))
        return out.square().mean() + pa.ksvd_loss(model)

    found = vmap(grad(loss), (None, 0))(parameters(model), x)
    for i, row in enumerate(x):
        (model(row.unsqueeze(0)).square().mean() + pa.ksvd_loss(model)).backward()
        assert_close({name: g[i] for name, g in found.items()}, gradients(model), **CLOSE)


def test_vmap_over_samples(kind, make_layer, held, randn):
    layer, x = make_layer(kind), randn(3, 5, 8)
    for mode in (True, False):
        layer.train(mode)
        found = vmap(lambda row: layer(row)[0])(x)
        assert held(layer) == 0  # what vmap made must not outlive it
        assert_close(found, layer(x)[0], **CLOSE)
        layer.ledger.release()


def test_derivatives_of_the_input(kind, make_layer, randn):
    layer, x = make_layer(kind).eval(), randn(2, 5, 8)
    found = torch.func.jacrev(lambda rows: layer(rows)[0].square().sum())(x)
    leaf = x.clone().requires_grad_()
    layer(leaf)[0].square().sum().backward()
    assert_close(found, leaf.grad, **CLOSE)
