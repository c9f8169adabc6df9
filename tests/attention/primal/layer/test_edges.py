"""What a layer meets in other people's models: hooks, aliases, in-place changes, empty batches."""

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

from primal_attention import PrimalAttention, fold_, ksvd_loss, ksvd_residuals

KINDS = ["data-sample", "data-mean", "free", "tied", "free-causal", "tied-causal"]
every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
def test_the_output_may_be_changed_in_place(kind, make_layer, make_rows):
    layer = make_layer(kind)
    x = make_rows(2, 5, 6).requires_grad_()
    expected = layer(x)[0] + 1.0
    expected.square().sum().backward()
    gradient, x.grad = x.grad, None
    out, _ = layer(x)
    out.add_(1.0).square_().sum().backward()
    assert_close(x.grad, gradient)


@every_kind
def test_backward_hooks_do_not_break_self_attention(kind, make_layer, make_rows):
    """torch hands a hooked module an alias of each argument: q, k and v are still one tensor."""
    layer, x = make_layer(kind), make_rows(2, 5, 6).requires_grad_()
    ignore = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    expected = layer(x, x, x, key_padding_mask=ignore)[0]
    expected.square().sum().backward()
    gradient, x.grad = x.grad, None
    calls = []
    layer.register_full_backward_hook(lambda *args: calls.append(args))
    out = layer(x, x, x, key_padding_mask=ignore)[0]
    out.square().sum().backward()
    assert len(calls) == 1
    assert_close(out, expected)
    assert_close(x.grad, gradient)


def test_a_detached_key_is_another_sequence(make_layer, make_rows):
    """Stopping the gradient of the keys is not self-attention: it must stay stopped."""
    layer, x = make_layer("tied").eval(), make_rows(2, 5, 6).requires_grad_()
    (whole,) = torch.autograd.grad(layer(x, x, x)[0].square().sum(), x)
    (stopped,) = torch.autograd.grad(layer(x, x.detach())[0].square().sum(), x)
    assert (whole - stopped).abs().max() > 1e-3


def test_reentrant_checkpointing_of_three_arguments(make_layer, make_rows):
    layer, x = make_layer("tied").eval(), make_rows(2, 5, 6).requires_grad_()
    (expected,) = torch.autograd.grad(layer(x)[0].square().sum(), x)
    out = checkpoint(lambda *args: layer(*args)[0], x, x, x, use_reentrant=True)
    out.square().sum().backward()
    assert_close(x.grad, expected)


@every_kind
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_an_empty_batch(kind, dtype, make_layer):
    layer = make_layer(kind, dtype=dtype)
    x = torch.zeros(0, 4, 6, dtype=dtype, requires_grad=True)
    out, _ = layer(x)
    loss = ksvd_loss(layer)
    assert out.shape == (0, 4, 6)
    assert loss == 0
    (out.sum() + loss).backward()
    assert all(torch.isfinite(p.grad).all() for p in layer.parameters() if p.grad is not None)


@every_kind
def test_a_sample_of_padding_is_no_sample(kind, make_layer, make_rows):
    layer, x = make_layer(kind), make_rows(2, 5, 6)
    layer(x[:1])
    alone = ksvd_loss(layer)
    layer(x, key_padding_mask=torch.tensor([[False] * 5, [True] * 5]))
    assert_close(ksvd_loss(layer), alone)
    layer(x, key_padding_mask=torch.ones(2, 5, dtype=torch.bool))
    assert ksvd_loss(layer) == 0


def test_the_loss_after_a_gradient_with_a_graph(make_layer, make_rows):
    layer, x = make_layer("tied"), make_rows(2, 5, 6).requires_grad_()
    layer.fast = False
    out, _ = layer(x)
    (gradient,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    (out.sum() + gradient.square().sum() + ksvd_loss(layer)).backward()
    with pytest.raises(RuntimeError, match="found no forward pass"):
        ksvd_loss(layer)


def test_initialisation_from_a_batch(make_layer, make_rows):
    """Free weights: zero over the batch as one sequence. Data: only one sequence has a solution."""
    x = make_rows(3, 20, 6)
    layer = make_layer("free", rank=2)
    layer.init_ksvd_(x, positions="sum")
    joined = ksvd_residuals(layer, x.flatten(0, 1)[None], positions="sum")
    assert joined.solved(1e-9).all()
    with pytest.raises(ValueError, match=r"holds 3 sequences; .* expected a batch of one"):
        make_layer("data-sample", rank=2).init_ksvd_(x)


def test_what_a_folded_layer_no_longer_has(make_layer, make_rows):
    layer = fold_(make_layer("free").eval())
    for name, call in {
        "reset_parameters": layer.reset_parameters,
        "ksvd_problem": lambda: layer.ksvd_problem(make_rows(1, 4, 6)),
        "init_ksvd_": lambda: layer.init_ksvd_(make_rows(1, 4, 6)),
    }.items():
        with pytest.raises(RuntimeError, match=f"{name} needs W_e and W_r; expected .* not folded"):
            call()


def test_autocast_leaves_float64_alone(make_layer, make_rows):
    layer, x = make_layer("tied"), make_rows(1, 4, 6)
    with torch.autocast("cpu", torch.bfloat16):
        out, _ = layer(x)
    assert_close(out, layer(x)[0])


def test_a_linear_map_that_is_replaced_is_refused(make_layer, make_rows):
    layer = make_layer("free")
    layer.out_proj = nn.Sequential(layer.out_proj)
    with pytest.raises(TypeError, match=r"out_proj is a Sequential; expected nn\.Linear"):
        layer(make_rows(1, 4, 6))


def test_integers_of_other_kinds_are_integers():
    numpy = pytest.importorskip("numpy")
    assert PrimalAttention(6, 2, rank=numpy.int64(3)).rank == 3


@every_kind
def test_frozen_parameters_and_inputs_without_gradient(kind, make_layer, make_rows):
    layer, x = make_layer(kind), make_rows(2, 5, 6)
    (layer(x)[0].square().sum() + ksvd_loss(layer)).backward()
    expected = {name: p.grad for name, p in layer.named_parameters()}
    layer.zero_grad()
    for name, p in layer.named_parameters():
        p.requires_grad_(name in ("sqrt_lambda", "out_proj.weight"))
    (layer(x)[0].square().sum() + ksvd_loss(layer)).backward()
    for name, p in layer.named_parameters():
        if p.requires_grad:
            assert_close(p.grad, expected[name])
        else:
            assert p.grad is None


@every_kind
def test_backward_twice(kind, make_layer, make_rows):
    layer, x = make_layer(kind).eval(), make_rows(2, 5, 6).requires_grad_()
    out, _ = layer(x)
    (first,) = torch.autograd.grad(out.square().sum(), x, retain_graph=True)
    (second,) = torch.autograd.grad(out.square().sum(), x)
    assert torch.equal(first, second)


@pytest.mark.parametrize("tile", [1, 60, 10**6])
def test_tied_inference_in_tiles(tile, make_layer, make_rows, monkeypatch):
    """One tile, a few that are kept, and many that are made again: the same result."""
    monkeypatch.setattr("primal_attention.kernels.tiles.TILE", tile)
    layer, x = make_layer("tied").eval(), make_rows(3, 17, 6)
    ignore = torch.zeros(3, 17, dtype=torch.bool)
    ignore[1, 4:9] = True
    with torch.no_grad():
        found = layer(x, key_padding_mask=ignore)[0]
        layer.fast = False
        assert_close(found, layer(x, key_padding_mask=ignore)[0], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("fast", [True, False])
@every_kind
@pytest.mark.parametrize("features", ["cosine", "elu"])
def test_forward_mode(kind, features, fast, make_layer, make_rows):
    """Of the outputs, and of the gradient: a product with the Hessian."""
    layer = make_layer(kind, feature_map=features)
    layer.fast = fast
    x, tangent = make_rows(2, 2, 5, 6)

    def gradient(rows):
        return torch.func.grad(lambda y: layer(y)[0].sin().sum())(rows)

    for function in (lambda y: layer(y)[0], gradient):
        _, found = torch.func.jvp(function, (x,), (tangent,))
        ahead, behind = (function(x + step * tangent) for step in (1e-6, -1e-6))
        assert_close(found, (ahead - behind) / 2e-6, rtol=1e-5, atol=1e-7)
    _, expected = torch.func.jvp(lambda y: layer(y)[0], (x,), (tangent,))
    with forward_ad.dual_level():
        dual = layer(forward_ad.make_dual(x, tangent))[0]
        assert_close(forward_ad.unpack_dual(dual).tangent, expected)
