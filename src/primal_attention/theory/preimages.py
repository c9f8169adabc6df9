"""Kernel machines of a few learned points (Huusari et al. 2021), and landmarks learned likewise.

    f(x) = sum_t alpha_t kappa(u_t, x) + b

drops the representer theorem: the pre-images u_t (T, d) are parameters, few, and sparse by an l1
penalty, so that a machine reads as T prototypes of a few columns each. It minimises

    mean_i loss(y_i, f(x_i)) + mu alpha^T K_uu alpha + lambda sum_t |u_t|_1

with Adam on the smooth part and a soft threshold on U after every step. Adam's own step leaves
small numbers in every column, so the support is then fixed, and all is fitted once more on it.

An l1 penalty selects columns only for kernels of <u, x>: for a Gaussian a coordinate of zero still
counts x_f^2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Name = Literal["poly", "sigmoid", "linear", "rbf"]
NAMES = ("poly", "sigmoid", "linear", "rbf")
OF_PRODUCTS = ("poly", "sigmoid", "linear")
JUNK = 0.1  # of the largest entry of a column of U: what is smaller is no support


@dataclass(frozen=True)
class PointKernel:
    """kappa(u, x): `poly` (gamma <u, x> + coef0)^degree, `sigmoid` tanh(gamma <u, x> + coef0),
    `linear` <u, x>, `rbf` exp(-gamma |u - x|^2)."""

    name: str
    gamma: float = 1.0
    degree: float = 2
    coef0: float = 0.0

    def __call__(self, u: Tensor, x: Tensor) -> Tensor:
        """u (T, d), x (n, d): (n, T)."""
        products = x @ u.mT
        if self.name == "linear":
            return products
        if self.name == "poly":
            return (self.gamma * products + self.coef0) ** self.degree
        if self.name == "sigmoid":
            return torch.tanh(self.gamma * products + self.coef0)
        distances = x.square().sum(-1, keepdim=True) - 2 * products + u.square().sum(-1)
        return torch.exp(-self.gamma * distances.clamp(min=0.0))

    @property
    def positive(self) -> bool:
        """Whether K_uu is positive semidefinite, so that alpha^T K_uu alpha is a norm."""
        return self.name != "sigmoid"


@dataclass(frozen=True, eq=False)
class Machine:
    """A fitted f: points u (T, d), alpha (T, c), b (c,)."""

    kernel: PointKernel
    points: Tensor
    alpha: Tensor
    bias: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """(n, c)"""
        return self.kernel(self.points, x) @ self.alpha + self.bias

    @property
    def numbers(self) -> int:
        """How many numbers it is: those of U that are not zero, alpha and b."""
        return int((self.points != 0).sum()) + self.alpha.numel() + self.bias.numel()


@dataclass(frozen=True)
class Learner:
    """How a machine is learned."""

    kernel: PointKernel
    points: int
    l1: float
    ridge: float
    steps: int
    lr: float
    seed: int
    learn_points: bool = True
    restarts: int = 1

    def fit(self, x: Tensor, y: Tensor, loss: Callable[[Tensor, Tensor], Tensor]) -> Machine:
        """On x (n, d) and targets y: indices of classes (n,), or numbers (n, 1). `loss` is the mean
        over (n, c) outputs and targets. The best of `restarts` is kept: by the objective, or,
        where a penalty made them sparse, by the likelihood with Schwarz's price of a number."""
        outputs = y.shape[1] if y.dim() == 2 else max(int(y.max()) + 1, 2)
        outputs = 1 if y.dim() == 1 and outputs == 2 else outputs  # two classes: one output
        chosen = torch.Generator().manual_seed(self.seed)
        found: list[tuple[float, Machine]] = []
        for _ in range(self.restarts):
            start = x[torch.randperm(len(x), generator=chosen)[: self.points]].clone()
            if not self.learn_points and y.dim() == 2:
                machine = solved(self.kernel, start, x, y, self.ridge)
            else:
                machine = self._descend(start, outputs, x, y, loss, chosen)
            with torch.no_grad():
                found.append((self._criterion(machine, x, y, loss), machine))
        finite = [pair for pair in found if math.isfinite(pair[0])]  # NaN is less than nothing
        if not finite:
            raise FloatingPointError(
                f"the criterion of a restart is {found[-1][0]}; expected a lower lr than {self.lr}"
            )
        return min(finite, key=lambda pair: pair[0])[1]

    def _criterion(
        self, f: Machine, x: Tensor, y: Tensor, loss: Callable[[Tensor, Tensor], Tensor]
    ) -> float:
        """What restarts are compared by. The refit on a support has no penalty, so the objective
        alone would prefer the machine that has kept more columns of noise."""
        if not self.l1:
            return float(self._objective(f, x, y, loss))
        off = float(loss(f(x), y))
        unlikely = 0.5 * math.log(max(off, 1e-12)) if y.dim() == 2 else off  # Gaussian errors
        return unlikely + 0.5 * f.numbers * math.log(len(x)) / len(x)

    def _objective(
        self, f: Machine, x: Tensor, y: Tensor, loss: Callable[[Tensor, Tensor], Tensor]
    ) -> Tensor:
        inner = (
            f.kernel(f.points, f.points) if f.kernel.positive else torch.eye(len(f.points)).to(x)
        )
        return loss(f(x), y) + self.ridge * (f.alpha * (inner @ f.alpha)).sum()

    def _descend(
        self,
        start: Tensor,
        outputs: int,
        x: Tensor,
        y: Tensor,
        loss: Callable[[Tensor, Tensor], Tensor],
        chosen: torch.Generator,
    ) -> Machine:
        alpha = 0.1 * torch.randn(len(start), outputs, generator=chosen).to(x)
        u, bias = start, x.new_zeros(outputs)
        support = torch.ones_like(u, dtype=torch.bool)
        phases = [(self.l1, self.steps)] if self.l1 else []
        for l1, steps in (*phases, (0.0, self.steps // 2 if self.l1 else self.steps)):
            leaves = [t.detach().clone().requires_grad_() for t in (u, alpha, bias)]
            if not self.learn_points:
                leaves[0].requires_grad_(False)
            optimizer = torch.optim.Adam([t for t in leaves if t.requires_grad], lr=self.lr)
            for step in range(steps):
                fade = 1.0 - step / steps
                optimizer.param_groups[0]["lr"] = self.lr * fade
                optimizer.zero_grad()
                rows = _batch(len(x), chosen)
                machine = Machine(self.kernel, leaves[0] * support, *leaves[1:])
                target = y if rows is None else y[rows]
                self._objective(machine, x if rows is None else x[rows], target, loss).backward()
                optimizer.step()
                if l1:
                    with torch.no_grad():
                        shrunk = (leaves[0].abs() - l1 * self.lr * fade).clamp(min=0.0)
                        leaves[0].copy_(leaves[0].sign() * shrunk)
            u, alpha, bias = (t.detach() for t in leaves)
            u = u * support
            if l1:
                support = _support(u)
                u = u * support
        return Machine(self.kernel, u, alpha, bias)


def solved(kernel: PointKernel, points: Tensor, x: Tensor, y: Tensor, ridge: float) -> Machine:
    """The exact minimum over alpha and b for numbers y (n, c) and given points:
    `(K^T K + n mu K_uu) alpha = K^T (y - b)`. With all x as points it is kernel ridge regression
    with penalty n mu, around the mean of y."""
    bias = y.mean(0)
    k, inner = kernel(points, x), kernel(points, points)
    left = k.mT @ k + len(x) * ridge * inner
    alpha = torch.linalg.lstsq(left, k.mT @ (y - bias), driver="gelsd").solution
    return Machine(kernel, points, alpha, bias)


def learned_landmarks(
    kernel: Callable[[Tensor, Tensor], Tensor],
    left: Tensor,
    right: Tensor,
    counts: tuple[int, int],
    *,
    steps: int,
    seed: int,
) -> tuple[Tensor, Tensor]:
    """Points U (n, d), V (m, d) for `K ~ kappa(X, V) kappa(U, V)^+ kappa(U, Z)`: they start at
    random rows of X (N, d) and Z (M, d) and descend the squared error of random blocks of K.
    `kernel` takes (N, d), (M, d) to (N, M)."""
    chosen = torch.Generator().manual_seed(seed)

    def some(rows: Tensor, count: int) -> Tensor:
        return rows[torch.randperm(len(rows), generator=chosen)[:count]]

    points = [
        some(rows, n).clone().requires_grad_()
        for rows, n in zip((left, right), counts, strict=True)
    ]
    spread = float(torch.cat([left, right]).std())
    optimizer = torch.optim.Adam(points, lr=0.05 * spread or 0.05)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = 0.05 * spread * (1.0 - step / steps)
        x, z = some(left, BLOCK), some(right, BLOCK)
        u, v = points
        corner = kernel(u, v)
        # a ridge: without one the gradient of a pseudo-inverse is that of its smallest values
        ridge = 1e-3 * corner.detach().square().sum().sqrt() / len(u) ** 0.5
        gram = corner.mT @ corner + ridge**2 * torch.eye(len(v)).to(x)
        made = kernel(x, v) @ torch.linalg.solve(gram, corner.mT @ kernel(u, z))
        error = (made - kernel(x, z)).square().mean()
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
    return points[0].detach(), points[1].detach()


BLOCK = 256  # rows and columns of K in a step of learned landmarks
BATCH = 4096  # points in a step of a machine


def _batch(count: int, chosen: torch.Generator) -> Tensor | None:
    return None if count <= BATCH else torch.randperm(count, generator=chosen)[:BATCH]


def _support(u: Tensor) -> Tensor:
    """Which entries of U (T, d) are more than junk."""
    largest = u.abs().max()
    return u.abs() > JUNK * largest
