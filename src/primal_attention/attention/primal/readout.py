"""The readout W_c of the scores, as weights or as a Gaussian over weights.

The published model of uncertainty (KEP-SVGP, Chen et al., ICML 2024) puts a Gaussian process on
the scores, u ~ N(0, Lambda^2) and f = e Lambda^-1 u. With w = Lambda^-1 u this is a linear readout
whose weights are a Gaussian: the same prior, posterior and KL, and nothing else of a layer changes,

    f_i = W_c [e_i; r_i]      row d of W_c:  w_d ~ N(m_d, L_d L_d^T),  prior N(0, tau^2 I)

One draw of W_c is one function: all positions, heads and samples of a call share it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, TypeVar, get_args

import torch
from torch import Tensor, nn

from ...names import check_choice

Covariance = Literal["shared", "full", "diagonal"]
M = TypeVar("M", bound=nn.Module)

DEVIATION = 0.1  # of the posterior at its start, in root mean squares of W_c


class Readout(nn.Module):
    """Base of the layers that end in W_c, `concat`. Whoever reads its weights asks `readout`."""

    concat: nn.Linear

    def readout(self) -> tuple[Tensor, Tensor | None]:
        """W_c (p, 2s) and its bias: the parameters, or a draw where `variational_` was here."""
        concat, posterior = self.concat, self.posterior
        if posterior is None:
            return concat.weight, concat.bias
        return posterior.weight(concat.weight, self.training), concat.bias

    @property
    def posterior(self) -> Posterior | None:
        """The Gaussian on W_c, or None."""
        return self._modules.get("gaussian")  # type: ignore[return-value]


class Posterior(nn.Module):
    """q(w_d) = N(m_d, L_d L_d^T) over the rows of a weight m (p, k), the mean.

    `factor` holds L, its diagonal as logarithms: (k, k) for all rows ("shared"), (p, k, k) ("full")
    or the diagonals alone, (p, k) ("diagonal"). `tau` is the prior's deviation; None takes its
    optimum for the KL at hand, tau^2 = sum_d (|m_d|^2 + |L_d|^2) / (k p).
    """

    def __init__(self, mean: Tensor, covariance: Covariance, tau: float | None) -> None:
        super().__init__()
        check_choice("covariance", covariance, get_args(Covariance))
        if tau is not None and not (math.isfinite(tau) and tau > 0):
            raise ValueError(f"tau is {tau}; expected a number above 0, or None")
        self.covariance, self.tau = covariance, tau
        rows, width = mean.shape
        start = math.log(max(float(mean.detach().square().mean().sqrt()), 1e-3) * DEVIATION)
        if covariance == "diagonal":
            factor = mean.new_full((rows, width), start)
        else:
            factor = torch.diag_embed(mean.new_full((width,), start))
            factor = factor if covariance == "shared" else factor.repeat(rows, 1, 1)
        self.factor = nn.Parameter(factor.detach().clone())
        self._drawn: Tensor | None = None

    def cholesky(self) -> Tensor:
        """L as (k, k) or (p, k, k), lower triangular with a positive diagonal."""
        if self.covariance == "diagonal":
            return torch.diag_embed(self.factor.exp())
        diagonal = self.factor.diagonal(dim1=-2, dim2=-1)
        return self.factor.tril(-1) + torch.diag_embed(diagonal.exp())

    def weight(self, mean: Tensor, training: bool) -> Tensor:
        """What a call multiplies with: in training with gradients a new draw, else the mean; inside
        `drawing` that draw."""
        if self._drawn is not None:
            return self._drawn.to(mean)
        return self.draw(mean) if training and torch.is_grad_enabled() else mean

    def draw(self, mean: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """m_d + L_d eps_d (p, k); with a generator of the CPU, the same on all devices."""
        if generator is None:
            noise = torch.randn_like(mean)
        else:
            noise = torch.randn(mean.shape, generator=generator, dtype=torch.float64).to(mean)
        if self.covariance == "diagonal":
            return mean + noise * self.factor.exp()
        if self.covariance == "shared":
            return mean + noise @ self.cholesky().mT
        return mean + (self.cholesky() @ noise.unsqueeze(-1)).squeeze(-1)

    def kl(self, mean: Tensor) -> Tensor:
        """KL(q || prior) of all rows together, exact."""
        rows, width = mean.shape
        if self.covariance == "diagonal":
            logs, spread = self.factor.sum(), (2 * self.factor).exp().sum()
        else:
            factor = self.cholesky()
            logs, spread = factor.diagonal(dim1=-2, dim2=-1).log().sum(), factor.square().sum()
            if self.covariance == "shared":
                logs, spread = rows * logs, rows * spread
        energy, count = mean.square().sum() + spread, rows * width
        if self.tau is None:
            return 0.5 * count * (energy / count).log() - logs
        return 0.5 * (energy / self.tau**2 - count) + count * math.log(self.tau) - logs

    def extra_repr(self) -> str:
        return f"covariance={self.covariance!r}, tau={self.tau}"


def variational_(
    model: M,
    *,
    covariance: Covariance = "shared",
    tau: float | None = None,
    layers: Literal["last", "all"] = "last",
) -> M:
    """Make the readout W_c of primal layers a Gaussian, in place; returns the model.

    In training every call draws W_c anew; in evaluation it is the mean, bit for bit what the layer
    computed before. The loss of a data set of n cases is `loss + kl_loss(model) / n`, and
    `draws(model, inputs, 16)` gives outputs under 16 draws. `layers="last"`: the last primal layer.
    """
    check_choice("layers", layers, ("last", "all"))
    found = [(n, m) for n, m in model.named_modules() if isinstance(m, Readout) and _readable(m)]
    if not found:
        raise ValueError(
            f"{type(model).__name__} has no primal layer with a readout W_c; expected at least one "
            "that is not folded"
        )
    for name, layer in found if layers == "all" else found[-1:]:
        if layer.posterior is not None:
            raise ValueError(f"{name or 'the layer'} is variational already; expected a plain one")
        layer.add_module("gaussian", Posterior(layer.concat.weight, covariance, tau))
    return model


def kl_loss(model: nn.Module) -> Tensor:
    """The sum of KL(q || prior) over the variational readouts of a model. Divide it by the number
    of training cases: it belongs to the whole data set."""
    found = variational_layers(model)
    if not found:
        raise ValueError(f"{type(model).__name__} has no variational readout; call variational_")
    return torch.stack(
        [posterior.kl(layer.concat.weight).double() for layer, posterior in found]
    ).sum()


def variational_layers(model: nn.Module) -> list[tuple[Readout, Posterior]]:
    """The layers whose readout is a Gaussian, with it."""
    layers = [module for module in model.modules() if isinstance(module, Readout)]
    return [(one, one.posterior) for one in layers if one.posterior is not None]


@contextmanager
def drawing(model: nn.Module, generator: torch.Generator) -> Iterator[None]:
    """Inside the `with`, all calls of a model read one draw of its variational readouts."""
    found = variational_layers(model)
    try:
        for layer, posterior in found:
            posterior._drawn = posterior.draw(layer.concat.weight, generator)
        yield
    finally:
        for _, posterior in found:
            posterior._drawn = None


def _readable(layer: Readout) -> bool:
    return isinstance(layer._modules.get("concat"), nn.Linear)
