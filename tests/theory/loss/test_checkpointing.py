"""Gradient checkpointing runs a forward twice; the objective must count it once."""

import pytest
import torch
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

import primal_attention as pa


def through(model, x, **options):
    """The encoder with every layer checkpointed."""
    for layer in model.layers:
        x = x + checkpoint(lambda h, layer=layer: layer(h)[0], x, **options)
    return model.readout(x.mean(1))


def test_same_loss_same_gradients(kind, make_encoder, gradients, held, randn):
    model, x = make_encoder(kind), randn(2, 5, 8)
    out = model(x)
    loss = pa.ksvd_loss(model)
    (out.square().mean() + loss).backward()
    expected = gradients(model)
    for _ in range(2):  # the second step must not see anything of the first
        out = through(model, x, use_reentrant=False)
        again = pa.ksvd_loss(model)
        (out.square().mean() + again).backward()
        assert torch.equal(again, loss)
        assert_close(gradients(model), expected, rtol=1e-12, atol=1e-14)
        assert [held(layer) for layer in model.layers] == [0, 0]


def test_the_whole_model_in_one_checkpoint_and_two_documents(make_encoder, gradients, held, randn):
    model, a, b = make_encoder({"weights": "tied"}), randn(2, 5, 8), randn(2, 7, 8)

    def step(run):
        out = run(a) - run(b)
        loss = pa.ksvd_loss(model)
        (out.square().mean() + loss).backward()
        assert [held(layer) for layer in model.layers] == [0, 0]
        return loss.detach(), gradients(model)

    expected = step(model)
    found = step(lambda x: checkpoint(model, x, use_reentrant=False))
    assert_close(found, expected, rtol=1e-12, atol=1e-14)


def test_a_second_forward_that_runs_to_its_end(make_encoder, gradients, held, randn):
    """By default torch stops it as soon as it has what it needs, which may be before the end."""
    model, x = make_encoder({"weights": "tied"}), randn(2, 5, 8)
    model(x)
    loss = pa.ksvd_loss(model)
    loss.backward()
    expected = gradients(model)
    for _ in range(2):
        with set_checkpoint_early_stop(False):
            through(model, x, use_reentrant=False)
        again = pa.ksvd_loss(model)
        again.backward()
        assert torch.equal(again, loss)
        assert_close(gradients(model), expected, rtol=1e-12, atol=1e-14)
        assert [held(layer) for layer in model.layers] == [0, 0]


def test_without_the_loss_nothing_stays(make_encoder, held, randn):
    model, x = make_encoder({"weights": "data", "anchors": 4}), randn(2, 5, 8).requires_grad_()
    for reentrant in (False, True):
        through(model, x, use_reentrant=reentrant).sum().backward()
        assert [held(layer) for layer in model.layers] == [0, 0]


def test_reentrant_checkpointing_is_refused(make_encoder, randn):
    model, x = make_encoder({"weights": "free"}), randn(2, 5, 8).requires_grad_()
    through(model, x, use_reentrant=True)
    with pytest.raises(RuntimeError, match="use_reentrant=False"):
        pa.ksvd_loss(model)


def test_reentrant_checkpointing_of_one_layer_is_refused(make_encoder, randn):
    model, x = make_encoder({"weights": "free"}), randn(2, 5, 8).requires_grad_()
    h = checkpoint(lambda h: model.layers[0](h)[0], x, use_reentrant=True)
    model.layers[1](h)
    with pytest.raises(RuntimeError, match="use_reentrant=False"):
        pa.ksvd_loss(model)
