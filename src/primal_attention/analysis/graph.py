"""The conditional-independence graph of an attention kernel (after ABCD, Rohekar et al., NeurIPS
2023): which positions' rows still go together once others are accounted for.

    C = K^T K (columns: who is read alike)  or  K K^T (rows: who reads alike)
    rho_ij = C_ij / sqrt(C_ii C_jj)                     from factors: B_I (A^T A) B_I^T
    x _||_ y | S    where sqrt(n - |S| - 3) atanh |pc| is within the noise of n samples,
                    pc = -P_xy / sqrt(P_xx P_yy),  P = rho_{xyS}^{-1}

Where classes are read from one position (a class token), the rows of K are the variables, its
columns samples of them, and the target is that position's row, as published. A model that takes the
mean over positions reads the columns: they are the variables, the rows are samples, and the target
is what every row gives to the mean, the same for all (beyond the paper; the mean of all rows, as a
row, is nearest to what says least). It is a graph of the attention kernel; of the world that the
positions speak of it says nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..theory.factors import DenseKernel, Kernel, KernelFactors
from .capture import Found, find_attentions, run
from .readers import Call

Array = npt.NDArray[np.float64]

LARGEST_SET = 2  # of conditions
_RIDGE = 1e-6  # of the mean variance: K has few directions
_SINGULAR = 1e-10  # added to the diagonal: variables may be copies of each other
_WIDTHS = ("head_dim", "attention_head_size")


@dataclass(frozen=True, eq=False)
class AttentionGraph:
    """An undirected graph over units of positions, and over the target, its last node.

    `edges (k, k)` bool; `correlation (k, k)` rho; `strength (k, k)` the smallest |pc| that any test
    of an edge has seen, 0 where there is none. `units[i]` are the positions of node i, `()` for the
    target. `samples` is the n of the tests.
    """

    units: tuple[tuple[int, ...], ...]
    edges: npt.NDArray[np.bool_]
    correlation: Array
    strength: Array
    samples: int
    alpha: float

    @property
    def target(self) -> int:
        return len(self.units) - 1

    def neighbours(self, node: int) -> list[int]:
        return [int(other) for other in np.flatnonzero(self.edges[node])]

    def distances(self) -> Array:
        """From every node to the target (k,), infinite where no path leads there."""
        found = np.full(len(self.units), np.inf)
        found[self.target], reached = 0.0, [self.target]
        while reached:
            nearest = reached.pop(0)
            for other in self.neighbours(nearest):
                if np.isinf(found[other]):
                    found[other] = found[nearest] + 1
                    reached.append(other)
        return found


@torch.no_grad()
def attention_graph(
    model: nn.Module,
    inputs: Any,
    *,
    layer: int = -1,
    head: int | None = None,
    target: int | None = None,
    units: int | None = None,
    samples: int | None = None,
    alpha: float = 0.01,
) -> AttentionGraph:
    """The graph of one attention of a model on one input (given as to `spectrum`).

    `layer` counts the attentions, the last by default; `head=None` takes all heads of it side by
    side. `target`: a position, such as 0 for a class token; None is the mean over positions, for
    models that pool, and the graph is one of columns. `units`: so many equal parts of the sequence
    are the nodes; None takes the positions, at most half of `samples` of them, those that go most
    with the target. `samples`: the n of the tests, which decides how dense the graph is; None is
    the width of the values that K is applied to, p for each head.
    """
    kernels, width = last_kernels(model, inputs, layer, head)
    count = kernels[0].shape[-2]
    n = width if samples is None else samples
    parts = tuple((i,) for i in range(count))
    if units is not None:
        if not 1 <= units <= count:
            raise ValueError(f"units is {units}; expected 1 to {count}, the positions")
        places = np.array_split(np.arange(count), units)
        parts = tuple(tuple(part.tolist()) for part in places)
    return graph_of(kernels, parts, samples=n, alpha=alpha, target=target)


def graph_of(
    kernels: list[Kernel],
    units: tuple[tuple[int, ...], ...],
    *,
    samples: int,
    alpha: float = 0.01,
    target: int | None = None,
) -> AttentionGraph:
    """The graph of kernels (N, N) that stand side by side, over units and the target. Of more than
    half of `samples` units, those that go most with the target are taken: a correlation matrix of
    more variables than samples has no inverse."""
    if samples < 8 or not 0 < alpha < 1:
        raise ValueError(
            f"samples is {samples} and alpha {alpha}; expected at least 8, and a share below 1"
        )
    grams = [_columns(k, units) if target is None else _rows(k, units, target) for k in kernels]
    gram: Array = np.sum(grams, 0)
    kept = np.arange(len(units))
    most = max(2, samples // 2)
    if len(units) > most:
        pull = gram if target is None else _correlations(gram)
        kept = np.sort(np.argsort(-np.abs(pull[-1, :-1]), kind="stable")[:most])
    chosen = np.append(kept, len(units))
    block = gram[np.ix_(chosen, chosen)]
    ridge = _RIDGE * float(np.trace(block)) / len(block)
    rho = _correlations(block + ridge * np.eye(len(block)))
    edges, strength = skeleton(rho, samples, alpha)
    nodes = (*(units[i] for i in kept), ())
    return AttentionGraph(nodes, edges, rho, strength, samples, alpha)


def skeleton(rho: Array, samples: int, alpha: float) -> tuple[npt.NDArray[np.bool_], Array]:
    """Edges that no set of at most LARGEST_SET neighbours explains away (the PC algorithm, in the
    form that does not depend on the order of the nodes), and the least |pc| of each."""
    from scipy.stats import norm

    k = len(rho)
    edges = ~np.eye(k, dtype=bool)
    strength = np.abs(rho) * edges
    for size in range(LARGEST_SET + 1):
        if samples - size - 3 < 1:
            break
        bound = math.tanh(norm.ppf(1 - alpha / 2) / math.sqrt(samples - size - 3))
        before = edges.copy()
        for x, y in combinations(range(k), 2):
            if not before[x, y]:
                continue
            least = _least_partial(rho, x, y, before, size)
            strength[x, y] = strength[y, x] = min(strength[x, y], least)
            if least < bound:
                edges[x, y] = edges[y, x] = False
    return edges, strength * edges


def _least_partial(rho: Array, x: int, y: int, edges: npt.NDArray[np.bool_], size: int) -> float:
    """The least |pc| of x and y over the sets of `size` neighbours of either."""
    sets: set[tuple[int, ...]] = set()
    for node, other in ((x, y), (y, x)):
        near = [int(i) for i in np.flatnonzero(edges[node]) if i != other]
        sets.update(combinations(near, size))
    if not sets:
        return math.inf
    chosen = np.array([(x, y, *one) for one in sorted(sets)])  # (m, 2 + size)
    blocks = rho[chosen[:, :, None], chosen[:, None, :]] + _SINGULAR * np.eye(2 + size)
    inverse = np.linalg.inv(blocks)
    scale = np.sqrt(np.maximum(inverse[:, 0, 0] * inverse[:, 1, 1], 1e-30))
    return float(np.abs(inverse[:, 0, 1] / scale).min())


@torch.no_grad()
def last_kernels(
    model: nn.Module, inputs: Any, layer: int = -1, head: int | None = None
) -> tuple[list[Kernel], int]:
    """The kernels of one attention on one input, a head each, and the width of their values."""
    found = find_attentions(model)
    seen: dict[str, tuple[list[Kernel], int]] = {}

    def see(one: Found, call: Call, out: Any) -> None:
        samples = list(one.reader.kernels(one.module, call, out))
        if len(samples) != 1:
            raise ValueError(f"it was given {len(samples)} inputs; expected one")
        queries, keys = samples[0][0].shape[-2:]
        if queries == keys:
            seen[one.name] = samples[0], _width(one.module, samples[0])

    if not found:
        raise ValueError(f"{type(model).__name__} has no attention that is known here")
    skipped = run(model, found, inputs, see)
    if not seen:
        reasons = "; ".join(f"{name}: {why}" for name, why in skipped.items())
        raise ValueError(f"no attention of {type(model).__name__} has a matrix here ({reasons})")
    attentions = list(seen.values())
    if not -len(attentions) <= layer < len(attentions):
        raise ValueError(f"layer is {layer}; expected one of {len(attentions)} attentions")
    kernels, width = attentions[layer]
    if head is None:
        return kernels, width * len(kernels)
    if not 0 <= head < len(kernels):
        raise ValueError(f"head is {head}; expected 0 to {len(kernels) - 1}")
    return [kernels[head]], width


def _width(module: nn.Module, kernels: list[Kernel]) -> int:
    """The width p of the values of a head."""
    for name in _WIDTHS:
        if isinstance(found := getattr(getattr(module, "primal", module), name, None), int):
            return max(found, 8)
    return max(kernels[0].max_rank, 8)


def _columns(kernel: Kernel, units: tuple[tuple[int, ...], ...]) -> Array:
    """C (k + 1, k + 1) of the units' columns, summed over their positions, and of the target, one
    for every row."""
    made: Kernel
    if isinstance(kernel, KernelFactors):
        nodes = torch.stack([_sum(kernel.b.double(), unit) for unit in units])  # (k, r)
        made, rows = KernelFactors(nodes, kernel.a.double()), kernel.a
    else:
        rows = kernel.dense()
        made = DenseKernel(torch.stack([_sum(rows.mT.double(), unit) for unit in units]))  # (k, N)
    seen = (rows != 0).any(-1)  # rows that take part
    with_target = made.matvec(seen.double())[:, None]
    corner = seen.double().sum().view(1, 1)
    whole = torch.cat(
        [
            torch.cat([made.gram(slice(None)), with_target], 1),
            torch.cat([with_target.mT, corner], 1),
        ]
    )
    return np.asarray(whole.cpu().numpy())


def _rows(kernel: Kernel, units: tuple[tuple[int, ...], ...], target: int) -> Array:
    """C (k + 1, k + 1) of the units' rows, summed over their positions, and of the target's row."""
    rows = kernel.a if isinstance(kernel, KernelFactors) else kernel.dense()
    nodes = torch.stack([*(_sum(rows.double(), unit) for unit in units), rows.double()[target]])
    made: Kernel = DenseKernel(nodes)
    if isinstance(kernel, KernelFactors):
        made = KernelFactors(nodes, kernel.b.double())
    return np.asarray(made.gram(slice(None)).cpu().numpy())


def _sum(rows: Tensor, unit: tuple[int, ...]) -> Tensor:
    return rows[torch.tensor(unit, dtype=torch.long, device=rows.device)].sum(0)


def _correlations(gram: Array) -> Array:
    scale = np.sqrt(np.maximum(np.diag(gram), 1e-300))
    rho = gram / scale[:, None] / scale
    np.fill_diagonal(rho, 1.0)
    return np.asarray(np.clip(rho, -1.0, 1.0))
