"""Mixtures of log-normals: equal to torch.distributions, in the units of the data."""

import pytest
import torch
from torch import distributions as d

from primal_attention.models.mixture import LogNormalMixture

F64 = torch.float64


def draw(shape=(3, 4), parts=5, seed=0):
    g = torch.Generator().manual_seed(seed)
    logits, means, scales = (torch.randn(*shape, parts, generator=g, dtype=F64) for _ in range(3))
    own = LogNormalMixture(logits.log_softmax(-1), means, scales)
    torchs = d.MixtureSameFamily(d.Categorical(logits=logits), d.LogNormal(means, scales.exp()))
    return own, torchs


def test_densities_are_those_of_torch():
    own, torchs = draw()
    gaps = torch.rand(3, 4, generator=torch.Generator().manual_seed(1), dtype=F64) * 9 + 1e-3
    torch.testing.assert_close(own.log_prob(gaps), torchs.log_prob(gaps))
    torch.testing.assert_close(own.cdf(gaps), torchs.cdf(gaps))
    torch.testing.assert_close(own.mean(), torchs.mean)


def test_another_unit_adds_its_logarithm():
    own, _ = draw()
    gaps = torch.full((3, 4), 2.0, dtype=F64)
    hours = own._replace(means=own.means - torch.tensor(3600.0, dtype=F64).log())
    shift = hours.log_prob(gaps / 3600.0) - own.log_prob(gaps)
    torch.testing.assert_close(shift, torch.full((3, 4), 3600.0, dtype=F64).log())


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9])
def test_quantiles_are_where_the_chance_is(share):
    own, _ = draw()
    torch.testing.assert_close(own.cdf(own.quantile(share)), torch.full((3, 4), share, dtype=F64))
    torch.testing.assert_close(own.median(), own.quantile(0.5))
    with pytest.raises(ValueError, match="share is 1"):
        own.quantile(1.0)


def test_a_quantile_beyond_all_numbers_is_the_greatest():
    wild = LogNormalMixture(torch.zeros(1), torch.zeros(1), torch.tensor([10.0]))
    assert wild.quantile(0.9) == torch.finfo(torch.float64).max
    assert wild.quantile(0.1) == 0.0


def test_samples_are_of_the_distribution():
    own, _ = draw((1,), 3)
    many = LogNormalMixture(*(part.expand(20_000, 3) for part in own))
    gaps = many.sample(torch.Generator().manual_seed(0))
    for share in (0.1, 0.5, 0.9):
        below = float((gaps < own.quantile(share)).double().mean())
        assert below == pytest.approx(share, abs=0.015)


def test_a_fit_to_log_normal_gaps_gives_their_parameters_back():
    g = torch.Generator().manual_seed(0)
    gaps = (1.5 + 0.4 * torch.randn(2000, generator=g, dtype=F64)).exp()
    mean, log_scale = (torch.zeros(1, dtype=F64, requires_grad=True) for _ in range(2))
    optimizer = torch.optim.LBFGS([mean, log_scale], line_search_fn="strong_wolfe")

    def loss():
        optimizer.zero_grad()
        one = LogNormalMixture(torch.zeros(1, dtype=F64), mean, log_scale)
        found = -one.log_prob(gaps).mean()
        found.backward()
        return found

    optimizer.step(loss)
    assert float(mean.detach()) == pytest.approx(float(gaps.log().mean()), abs=1e-4)
    assert float(log_scale.detach().exp()) == pytest.approx(
        float(gaps.log().std(correction=0)), abs=1e-4
    )
