"""What an attention transports: how far it moves rows, and how far that is from the cheapest way.

For n rows x_i and where they go, T x_i, with equal weights, optimal transport is an assignment:

    W_2^2 = min over permutations of mean_i |x_i - T x_pi(i)|^2        optimality = W_2^2 / moved^2
    moved^2 = mean_i |x_i - T x_i|^2     Monge gap = moved^2 - W_2^2 >= 0    (Uscidda & Cuturi 2023)

The gap is 0 where the map is a gradient of a convex function (a translation, a symmetric positive
matrix) and above 0 where rows cross (a rotation, a permutation). Along training, the efficiency of
a path is W_2(first, last) over the sum of W_2 between neighbours: 1 where it is straight.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..adapters.converted import evaluation
from ..attention.masks import padding_mask
from ..runs.tables import aligned
from .capture import Found, calls, find_attentions
from .readers import arguments_of

Array = npt.NDArray[np.float64]
Rows = dict[str, tuple[Array, Array]]  # {attention: rows before and after, (n, d) each}

MOST = 500  # rows: an assignment of n takes n^3


@dataclass(frozen=True)
class LayerTransport:
    """One attention as a map of its input rows to its output rows: `distance` W_2, `moved` the root
    mean square of |x - T x|, `gap` the Monge gap, `optimality` in (0, 1]."""

    name: str
    rows: int
    distance: float
    moved: float
    gap: float
    optimality: float


@dataclass(frozen=True)
class Transport:
    """The attentions of a model; `skipped`: {name: reason}."""

    layers: tuple[LayerTransport, ...]
    skipped: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Numbers, lists and strings only: ready for JSON."""
        return {"layers": [vars(one) for one in self.layers], "skipped": dict(self.skipped)}

    def __str__(self) -> str:
        table = [["layer", "rows", "W2", "moved", "Monge gap", "optimality"]]
        for one in self.layers:
            numbers = (one.distance, one.moved, one.gap)
            cells = [*(f"{value:.4g}" for value in numbers), f"{one.optimality:.3f}"]
            table.append([one.name, str(one.rows), *cells])
        lines = aligned(table)
        lines += [f"skipped {name}: {reason}" for name, reason in self.skipped.items()]
        return "\n".join(lines)


def transport(model: nn.Module, inputs: Any, *, most: int = MOST, seed: int = 0) -> Transport:
    """How every attention of a model moves its rows, on inputs (given as to `spectrum`): from what
    it is given to what it gives, without the residual around it. Of more than `most` valid rows,
    so many are drawn."""
    rows, skipped = moved_rows(model, inputs, most=most, seed=seed)
    layers = tuple(layer_transport(name, x, y) for name, (x, y) in rows.items())
    return Transport(layers, skipped)


def layer_transport(name: str, x: Array, y: Array) -> LayerTransport:
    """The figures of one map, from rows x (n, d) and where they go."""
    moved = float(np.square(x - y).sum(1).mean())
    cheapest = squared_distance(x, y)
    gap = max(moved - cheapest, 0.0)
    optimality = cheapest / moved if moved > 0 else 1.0
    return LayerTransport(name, len(x), cheapest**0.5, moved**0.5, gap, min(optimality, 1.0))


def squared_distance(x: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """W_2^2 of two clouds of n points, equally weighted: (n, d) each."""
    from scipy.optimize import linear_sum_assignment

    a, b = (np.asarray(one, dtype=np.float64) for one in (x, y))
    if a.ndim != 2 or a.shape != b.shape or not len(a):
        raise ValueError(f"the clouds have shapes {a.shape} and {b.shape}; expected one (n, d)")
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise ValueError("a point is not finite; expected finite ones")
    a, b = a - a.mean(0), b - b.mean(0)  # the means are apart, whoever goes where
    apart = np.square(np.asarray(x, float).mean(0) - np.asarray(y, float).mean(0)).sum()
    products = a @ b.T
    first, second = linear_sum_assignment(-products)
    spread = np.square(a).sum(1).mean() + np.square(b).sum(1).mean()
    return float(max(apart + spread - 2 * products[first, second].mean(), 0.0))


def efficiency(path: list[Array]) -> float:
    """W_2 from the first cloud of a path to the last, over the length of the path, in (0, 1]."""
    if len(path) < 2:
        raise ValueError(f"the path has {len(path)} clouds; expected at least two")
    steps = [squared_distance(a, b) ** 0.5 for a, b in pairwise(path)]
    return squared_distance(path[0], path[-1]) ** 0.5 / sum(steps) if sum(steps) > 0 else 1.0


@torch.no_grad()
def moved_rows(
    model: nn.Module, inputs: Any, *, most: int = MOST, seed: int = 0
) -> tuple[Rows, dict[str, str]]:
    """The rows that attentions are given and give, the same positions for the same inputs and seed;
    and why others are not there."""
    if most < 2:
        raise ValueError(f"most is {most}; expected at least 2")
    found = find_attentions(model)
    if not found:
        raise ValueError(f"{type(model).__name__} has no attention that is known here")
    seen: dict[str, list[tuple[Tensor, Tensor]]] = {one.name: [] for one in found}
    skipped: dict[str, str] = {}

    def watch(one: Found, module: nn.Module, args: Any, kwargs: Any, out: Any) -> None:
        try:
            seen[one.name].append(_pair(module, (args, kwargs), out))
        except ValueError as reason:
            skipped[one.name] = str(reason)

    def hook(one: Found) -> Any:
        return one.module.register_forward_hook(
            lambda module, args, kwargs, out: watch(one, module, args, kwargs, out),
            with_kwargs=True,
        )

    handles = [hook(one) for one in found]
    try:
        with evaluation(model):
            for args, kwargs in calls(inputs):
                model(*args, **kwargs)
    finally:
        for handle in handles:
            handle.remove()
    rows: Rows = {}
    for name, pairs in seen.items():
        if not pairs:
            skipped.setdefault(name, "it was not called")
        elif name not in skipped:
            x, y = (torch.cat(part).double().cpu().numpy() for part in zip(*pairs, strict=True))
            if len(x) > most:
                chosen = np.random.default_rng(seed).choice(len(x), most, replace=False)
                x, y = x[chosen], y[chosen]
            rows[name] = x, y
    return rows, skipped


def _pair(module: nn.Module, call: Any, out: Any) -> tuple[Tensor, Tensor]:
    """The valid rows (n, d) of a call, before and after."""
    given = arguments_of(module, call)
    x = next(value for value in given.values() if isinstance(value, Tensor))
    y = out[0] if isinstance(out, tuple | list) else out
    if x.shape != y.shape:
        raise ValueError(f"it takes {tuple(x.shape)} and gives {tuple(y.shape)}; expected the same")
    if x.dim() == 3 and not getattr(module, "batch_first", True):
        x, y = x.transpose(0, 1), y.transpose(0, 1)
    x, y = (one if one.dim() == 3 else one.unsqueeze(0) for one in (x, y))
    mask = given.get("key_padding_mask")
    ignore = None
    key = given.get("key")
    if mask is not None and (key is None or key.shape == given["query"].shape):
        ignore = padding_mask(mask, x.shape[0], x.shape[1], batched=mask.dim() == 2)
    keep = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
    return (x[keep], y[keep]) if ignore is None else (x[~ignore], y[~ignore])
