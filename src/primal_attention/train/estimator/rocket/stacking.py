"""The parts' scores in one sum with positive weights, chosen on the scores of left-out cases."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from ....tasks.series import Floats

SPREAD = 0.01  # factor of var(log w)


def class_weights(scores: Tensor, labels: Tensor, spread: float = SPREAD) -> Tensor:
    """w (parts,) > 0 with the least cross-entropy of softmax(sum_p w_p scores_p).

    scores (parts, N, c) and labels (N,). As in Platt's scaling, a target is (N + 1) / (N + 2)
    instead of 1, so that w is finite if no case is wrong. The size of w is the temperature.
    """
    cases, classes = scores.shape[1:]
    share = 1.0 / (cases + 2)
    targets = one_hot(labels, classes).double() * (1.0 - share) + share / classes
    return _least(
        lambda w: cross_entropy(torch.tensordot(w, scores, 1), targets), len(scores), spread
    )


def value_weights(scores: Tensor, targets: Tensor, spread: float = SPREAD) -> Tensor:
    """w (parts,) > 0 with the least mean square of targets - sum_p w_p scores_p.

    scores (parts, N, 1) and targets (N, 1) of deviation 1.
    """
    return _least(
        lambda w: (targets - torch.tensordot(w, scores, 1)).square().mean(), len(scores), spread
    )


def _least(loss: Callable[[Tensor], Tensor], parts: int, spread: float) -> Tensor:
    """exp of the log w that minimise loss(w) + spread var(log w), from equal parts."""

    def value_and_gradient(point: Floats) -> tuple[float, Floats]:
        logarithms = torch.from_numpy(point).clone().requires_grad_()
        with torch.enable_grad():
            total = loss(logarithms.exp()) + spread * logarithms.var(correction=0)
            (gradient,) = torch.autograd.grad(total, logarithms)
        return float(total.detach()), gradient.numpy()

    start = np.full(parts, -np.log(parts))
    # within e^-10 ... e^10: a part without any use has no finite weight
    found = minimize(
        value_and_gradient, start, jac=True, method="L-BFGS-B", bounds=[(-10.0, 10.0)] * parts
    )
    return torch.from_numpy(found.x).exp()
