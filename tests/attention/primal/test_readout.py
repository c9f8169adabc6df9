"""The Gaussian on W_c: its KL, its draws, and the layer that it leaves as it was."""

import copy

import pytest
import torch
from torch.distributions import MultivariateNormal, kl_divergence

import primal_attention as pa
from primal_attention.attention.primal.heads import HeadsPrimalAttention
from primal_attention.attention.primal.readout import Posterior, drawing

COVARIANCES = ("shared", "full", "diagonal")


def posterior(covariance, tau=None, rows=3, width=4):
    torch.manual_seed(0)
    mean = torch.randn(rows, width, dtype=torch.float64)
    found = Posterior(mean, covariance, tau).double()
    with torch.no_grad():
        found.factor.add_(0.3 * torch.randn_like(found.factor))
    return found, mean


def each(found, mean):
    """The distribution of every row, by torch."""
    factor = found.cholesky().detach()
    factor = factor.expand(len(mean), *factor.shape[-2:])
    return [MultivariateNormal(m, scale_tril=f) for m, f in zip(mean, factor, strict=True)]


@pytest.mark.parametrize("covariance", COVARIANCES)
@pytest.mark.parametrize("tau", [0.7, None])
def test_kl_is_that_of_torch(covariance, tau):
    found, mean = posterior(covariance, tau)
    width = mean.shape[1]
    if tau is None:  # the closed form
        energy = mean.square().sum() + sum(
            one.covariance_matrix.trace() for one in each(found, mean)
        )
        tau = float((energy / mean.numel()).sqrt())
    prior = MultivariateNormal(torch.zeros(width).double(), tau**2 * torch.eye(width).double())
    expected = sum(kl_divergence(one, prior) for one in each(found, mean))
    torch.testing.assert_close(found.kl(mean).detach(), expected)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_the_prior_without_a_scale_is_the_best_one(covariance):
    found, mean = posterior(covariance)
    least = found.kl(mean).item()
    for tau in (0.3, 0.9, 1.1, 3.0):
        found.tau = tau
        assert found.kl(mean).item() > least


def test_published_process_is_this_readout():
    """f = e Lambda^-1 u with u ~ N(0, Lambda^2): KL and predictive are those of w = Lambda^-1 u."""
    found, mean = posterior("full", 1.0)
    sigma = torch.tensor([2.0, 1.3, 0.4, 0.1], dtype=torch.float64)
    scores = torch.randn(5, 4, dtype=torch.float64)
    prior = MultivariateNormal(torch.zeros(4).double(), sigma.square().diag())
    total = torch.zeros(())
    for one in each(found, mean):
        u = MultivariateNormal(sigma * one.loc, scale_tril=sigma[:, None] * one.scale_tril)
        total = total + kl_divergence(u, prior)
        e = scores / sigma  # E Lambda^-1
        torch.testing.assert_close(
            e @ u.covariance_matrix @ e.mT, scores @ one.covariance_matrix @ scores.mT
        )
        torch.testing.assert_close(e @ u.loc, scores @ one.loc)
    torch.testing.assert_close(total, found.kl(mean).detach())


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_draws_have_mean_and_covariance(covariance):
    """Of 20,000 rows that are all alike."""
    found, mean = posterior(covariance, rows=1, width=3)
    (one,), many = each(found, mean), mean.expand(20_000, 3)
    if covariance != "shared":
        found.factor = torch.nn.Parameter(
            found.factor.detach().expand(20_000, *found.factor.shape[1:])
        )
    with torch.no_grad():
        drawn = found.draw(many, torch.Generator().manual_seed(1))
    spread = one.covariance_matrix.diagonal().max()
    assert (drawn.mean(0) - mean[0]).abs().max() < 0.03 * spread.sqrt()
    assert (drawn.T.cov() - one.covariance_matrix).abs().max() < 0.05 * spread
    assert torch.linalg.matrix_rank(one.scale_tril) == 3


@pytest.mark.parametrize("kind", ["tied", "free", "data-mean", "tied-causal"])
def test_evaluation_is_the_layer_that_was(kind, make_layer, make_rows):
    layer, x = make_layer(kind), make_rows(2, 5, 6)
    layer.eval()
    before, _ = layer(x)
    keys = list(layer.state_dict())
    pa.variational_(layer)
    assert torch.equal(layer(x)[0], before)
    layer.train()
    with torch.no_grad():  # diagnostics and folding read the mean
        assert torch.equal(layer.readout()[0], layer.concat.weight)
    a, b = layer(x)[0], layer(x)[0]
    assert not torch.allclose(a, b)
    assert [key for key in layer.state_dict() if key in keys] == keys


@pytest.mark.parametrize("kind", ["tied", "free", "data-sample"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_path_reads_the_draw(kind, dtype, make_layer, make_rows):
    """Native, tiles and reference: a draw is only other weights."""
    layer, x = make_layer(kind, dtype=dtype).eval(), make_rows(2, 7, 6, dtype=dtype)
    plain = copy.deepcopy(layer)
    pa.variational_(layer)
    with drawing(layer, torch.Generator().manual_seed(3)):
        with torch.no_grad():
            plain.concat.weight.copy_(layer.readout()[0])
        torch.testing.assert_close(layer(x)[0], plain(x)[0])
        layer.fast = False
        torch.testing.assert_close(layer(x)[0], plain(x)[0])


def test_one_draw_for_all_positions(make_layer, make_rows):
    """A permuted sequence has permuted outputs under the same draw."""
    layer, x = pa.variational_(make_layer("tied").eval()), make_rows(1, 6, 6)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    with drawing(layer, torch.Generator().manual_seed(0)):
        torch.testing.assert_close(layer(x)[0][:, order], layer(x[:, order])[0])


def test_gradients_reach_mean_and_factor(make_layer, make_rows):
    layer = pa.variational_(make_layer("tied", dtype=torch.float32))
    torch.manual_seed(0)
    out, _ = layer(make_rows(2, 5, 6, dtype=torch.float32))
    (out.square().mean() + pa.kl_loss(layer) / 10).backward()
    assert layer.concat.weight.grad.abs().sum() > 0
    assert layer.posterior.factor.grad.tril().abs().sum() > 0
    assert layer.posterior.factor.grad.triu(1).abs().sum() == 0


def test_decoding_reads_the_draw(make_layer, make_rows):
    layer, x = pa.variational_(make_layer("tied-causal").eval()), make_rows(1, 4, 6)
    with drawing(layer, torch.Generator().manual_seed(0)), torch.no_grad():
        whole, _ = layer(x)
        state, steps = layer.init_state(1), []
        for i in range(4):
            out, state = layer.prefill(x[:, i : i + 1], state=state)
            steps.append(out)
    torch.testing.assert_close(torch.cat(steps, 1), whole)


def test_heads_of_converted_models_have_it_too():
    heads = pa.variational_(HeadsPrimalAttention(2, 4, rank=2))
    assert pa.kl_loss(heads).isfinite()


def test_last_layer_or_all():
    model = torch.nn.ModuleList([pa.PrimalAttention(8, 2), pa.PrimalAttention(8, 2)])
    pa.variational_(model)
    assert [one.posterior is not None for one in model] == [False, True]
    both = torch.nn.ModuleList([pa.PrimalAttention(8, 2), pa.PrimalAttention(8, 2)])
    assert all(one.posterior is not None for one in pa.variational_(both, layers="all"))


def test_what_is_refused():
    layer = pa.PrimalAttention(8, 2, weights="free")
    with pytest.raises(ValueError, match="no variational readout"):
        pa.kl_loss(layer)
    with pytest.raises(ValueError, match="covariance is 'round'"):
        pa.variational_(copy.deepcopy(layer), covariance="round")
    with pytest.raises(ValueError, match="tau is -1"):
        pa.variational_(copy.deepcopy(layer), tau=-1)
    with pytest.raises(ValueError, match="no primal layer with a readout"):
        pa.variational_(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="not folded"):
        pa.variational_(pa.fold_(copy.deepcopy(layer)))
    with pytest.raises(ValueError, match="variational already"):
        pa.variational_(pa.variational_(layer))
