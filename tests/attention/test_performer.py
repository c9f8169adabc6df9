"""Performer: random features, their range and their drawing; its matrix: test_factored.py."""

import math

import pytest
import torch
from torch.testing import assert_close

from primal_attention import make_attention
from primal_attention.attention import PerformerAttention
from primal_attention.attention.performer import orthogonal_gaussian


def make(**options):
    torch.manual_seed(0)
    return PerformerAttention(8, 2, **{"dtype": torch.float64, "features": 6} | options)


def draw(*shape, seed=1):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def softmax_like(layer):
    softmax = make_attention("softmax", 8, 2, causal=layer.causal, dtype=torch.float64)
    softmax.load_state_dict({n: p for n, p in layer.state_dict().items() if n != "projection"})
    return softmax


@pytest.mark.parametrize("causal", [False, True])
def test_many_features_are_softmax(causal):
    x, errors = 0.5 * draw(2, 12, 8), []
    for features in (16, 20000):
        layer = make(features=features, causal=causal)
        expected = softmax_like(layer).factors(x).dense()
        errors.append((layer.factors(x).dense() - expected).abs().max().item())
    assert errors[1] < 0.01
    assert errors[1] < errors[0] / 5


def test_gradients_with_many_features_are_those_of_softmax():
    x = (0.5 * draw(2, 12, 8)).requires_grad_()
    layer = make(features=20000)
    g = draw(2, 12, 8, seed=2)
    ours, right = (torch.autograd.grad(f(x)[0], x, g)[0] for f in (layer, softmax_like(layer)))
    assert (ours - right).norm() < 0.02 * right.norm()


@pytest.mark.parametrize("causal", [False, True])
def test_norms_beyond_the_range_of_the_exponential(causal):
    """Keys whose features all underflow, or overflow, if taken as they are."""
    layer, x = make(causal=causal, features=64).float(), draw(1, 70, 8).float()
    with torch.no_grad():
        layer.in_proj_weight[8:16] *= torch.linspace(40, 60, 8)[:, None]
    layer.in_proj_weight.requires_grad_()
    out, weights = layer(x, need_weights=True)
    assert_close(weights.sum(-1), torch.ones(1, 70))
    exact = layer.double()(x.double())[0]
    assert_close(out.double(), exact, rtol=1e-2, atol=1e-2)
    out.sum().backward()
    assert all(p.grad.isfinite().all() for p in layer.parameters())


def test_a_large_late_key_does_not_erase_the_past():
    """Causal: what came before is known to the last bit, and rows before it see nothing of it."""
    layer, x = make(causal=True, features=64).float(), draw(1, 100, 8).float()
    before = layer(x)[0]
    x[:, 80] *= 1e3
    after = layer(x)[0]
    assert torch.equal(before[:, :80], after[:, :80])
    assert after.isfinite().all()


def test_ignored_keys_do_not_set_the_scale():
    layer, x = make(features=64).float(), draw(2, 9, 8).float()
    ignore = torch.zeros(2, 9, dtype=torch.bool)
    ignore[:, 4] = True
    assert torch.equal(
        layer(x, key_padding_mask=ignore)[0],
        layer(x.index_fill(1, torch.tensor(4), 1e4), key_padding_mask=ignore)[0],
    )


def test_directions_are_orthogonal_with_gaussian_lengths():
    torch.manual_seed(0)
    drawn = orthogonal_gaussian(400, 16)
    assert drawn.shape == (400, 16)
    for block in drawn.split(16):
        gram = block @ block.mT
        assert_close(gram, torch.diag(gram.diagonal()), rtol=0, atol=1e-10)
    squares = drawn.square().sum(-1)  # chi-square with 16 degrees of freedom
    assert abs(squares.mean().item() - 16) < 1
    assert 4 < squares.std().item() < 7.5  # sqrt(32)
    assert drawn.mean(0).abs().max() < 0.25
    assert orthogonal_gaussian(5, 16).shape == (5, 16)


def test_the_number_of_features():
    assert PerformerAttention(64, 2).features == round(32 * math.log(32))
    assert PerformerAttention(2, 2).features == 1
    assert make(features=5).projection.shape == (5, 4)
    assert "features=5" in repr(make(features=5))
    with pytest.raises(ValueError, match="features is 0; expected an integer of at least 1"):
        make(features=0)
    with pytest.raises(ValueError, match="redraw_every is 0; expected an integer of at least 1"):
        make(redraw_every=0)


def test_redraw():
    layer, x = make(), draw(2, 5, 8)
    before, old = layer(x)[0], layer.projection
    out = layer(x.requires_grad_())[0]
    layer.redraw()
    assert not torch.equal(layer.projection, old)
    assert not torch.equal(layer(x)[0], before)
    assert layer.projection.dtype == torch.float64
    out.sum().backward()  # of the graph before
    assert "projection" in layer.state_dict()


def test_redraw_every_so_many_training_forwards():
    layer, x = make(redraw_every=2).train(), draw(2, 5, 8)

    def changes():
        before = layer.projection
        layer(x)
        return not torch.equal(before, layer.projection)

    assert [changes() for _ in range(6)] == [False, False, True, False, True, False]
    layer.eval()
    assert not any(changes() for _ in range(5))
    fixed = make().train()
    before = fixed.projection
    for _ in range(3):
        fixed(x)
    assert fixed.projection is before


def test_processes_that_train_together_draw_the_same():
    """They have the same state, but random numbers of their own."""
    drawn = []
    layer, x = make(redraw_every=1).train(), draw(2, 5, 8)
    for rank in range(2):
        copy = make(redraw_every=1).train()
        copy.load_state_dict(layer.state_dict())
        torch.manual_seed(rank)
        expected = torch.rand(3)
        torch.manual_seed(rank)
        drawn.append([copy(x) and copy.projection for _ in range(3)])
        assert torch.equal(torch.rand(3), expected), "nor do they lose any"
    for one, other in zip(*drawn, strict=True):
        assert torch.equal(one, other)
    assert not torch.equal(drawn[0][1], drawn[0][2])


def test_redraw_cannot_happen_in_a_graph():
    torch._dynamo.reset()
    layer = make(redraw_every=2).train()
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    with pytest.raises(Exception, match="redraw_every is 2 in a compiled graph"):
        compiled(draw(2, 5, 8))


def test_reset_draws_anew():
    layer = make()
    layer.projection.fill_(torch.nan)
    layer.reset_parameters()
    assert layer.projection.isfinite().all()


def test_the_count_of_forwards_is_saved():
    """So that a run that is resumed draws when it would have."""
    torch.manual_seed(0)
    layer, x = PerformerAttention(16, 2, redraw_every=3).train(), torch.randn(1, 5, 16)
    for _ in range(2):
        layer(x)
    other = PerformerAttention(16, 2, redraw_every=3).train()
    other.load_state_dict(layer.state_dict())
    before = other.projection.clone()
    other(x)
    assert torch.equal(other.projection, before)
    other(x)
    assert not torch.equal(other.projection, before)


@pytest.mark.parametrize("causal", [False, True])
def test_rows_that_underflow_have_a_gradient(causal):
    """Queries and keys far apart in float32: sums of a row as small as 1e-30."""
    torch.manual_seed(0)
    layer = PerformerAttention(16, 2, causal=causal)
    x = (24 * torch.randn(8, 60, 16)).requires_grad_()
    out, _ = layer(x)
    out.sin().sum().backward()
    assert out.isfinite().all()
    assert all(p.grad.isfinite().all() for p in (x, *layer.parameters()))
