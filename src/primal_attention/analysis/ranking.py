"""In which order the units of a case are removed: what each of them costs."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..theory.factors import Kernel, KernelFactors
from .cases import Case, Units
from .flow import rows_sum_to_one
from .graph import AttentionGraph, graph_of, last_kernels
from .sampling import logits_of

Order = Literal["graph", "attention", "gradient", "random", "greedy"]
Array = npt.NDArray[np.float64]


def rank(
    case: Case, order: Order, samples: int | None, alpha: float, seed: int
) -> tuple[Array, AttentionGraph | None]:
    """What a unit costs (units,): the smaller, the sooner it is tried."""
    count = len(case.units)
    if order == "random":
        return np.random.default_rng(seed).permutation(count).astype(float), None
    if order == "gradient":
        return _ranks(-_gradient(case)), None
    kernels, width = last_kernels(case.model, case.whole())
    rows = _rows_of(case, kernels[0].shape[-2])
    if order == "attention":
        return _ranks(-_weights(case, kernels, rows)), None
    graph = graph_of(
        kernels, rows, samples=width if samples is None else samples, alpha=alpha,
        target=case.target,
    )  # fmt: skip
    return _by_graph(graph, rows, _weights(case, kernels, rows)), graph


def _by_graph(graph: AttentionGraph, rows: Units, weights: Array) -> Array:
    """The distance to the target; among equals those that get more weight first. Units that the
    graph has left out come last."""
    distance = graph.distances()
    far = len(graph.units) + 1.0
    distance[~np.isfinite(distance)] = far
    near = {unit: distance[i] for i, unit in enumerate(graph.units[:-1])}
    share = weights / max(float(weights.max(initial=0.0)), 1e-300)
    return np.array([near.get(unit, 2 * far) for unit in rows]) - 0.99 * share


def _weights(case: Case, kernels: list[Kernel], rows: Units) -> Array:
    """The mean absolute weight that the positions of a unit get, or get from the target."""
    received = torch.stack([_received(kernel, case.target) for kernel in kernels]).sum(0)
    values = received.cpu().numpy()
    return np.array([values[list(unit)].sum() if unit else 0.0 for unit in rows])


def _received(kernel: Kernel, target: int | None) -> Tensor:
    """The weight (N,) that every position gets; of signed factors the root of its energy, since
    absolute values have none."""
    if not isinstance(kernel, KernelFactors):
        dense = kernel.dense().double().abs()
        return dense.sum(0) if target is None else dense[target]
    a, b = kernel.a.double(), kernel.b.double()
    if target is not None:
        return (b @ a[target]).abs()
    if rows_sum_to_one(kernel):
        return kernel.column_sums().double().abs()
    return ((b @ (a.mT @ a)) * b).sum(-1).clamp(min=0.0).sqrt()


def _rows_of(case: Case, seen: int) -> Units:
    """The positions of each unit as an attention sees them: the same, or of another number (tokens
    of convolutions, patches) those at the same share of the length. A class token in front of
    patches is of no unit."""
    length = case.length
    valid = sorted(place for unit in case.units for place in unit)
    if seen == length:
        return case.units
    if not case.exact:
        return _patches(case, seen)
    last = max(valid) + 1  # padding behind the end is not seen
    owner = {place: number for number, unit in enumerate(case.units) for place in unit}
    rows: list[list[int]] = [[] for _ in case.units]
    for token in range(seen):
        place = min(int((token + 0.5) * last / seen), last - 1)
        if place in owner:
            rows[owner[place]].append(token)
    return tuple(map(tuple, rows))


def _patches(case: Case, seen: int) -> Units:
    """Of an image: the patches whose centre lies in a unit."""
    height, width = case.inputs[0].shape[-2:]
    side = round((seen * height / width) ** 0.5)
    extra = seen - side * max(1, seen // max(side, 1))
    across = (seen - extra) // max(side, 1)
    owner = {place: number for number, unit in enumerate(case.units) for place in unit}
    rows: list[list[int]] = [[] for _ in case.units]
    for i in range(side):
        for j in range(across):
            y, x = int((i + 0.5) * height / side), int((j + 0.5) * width / across)
            if (number := owner.get(y * width + x)) is not None:
                rows[number].append(extra + i * across + j)
    return tuple(map(tuple, rows))


def _gradient(case: Case) -> Array:
    """|sum of gradient times input| over the positions of a unit: of the predicted class's logit,
    at the input, or for tokens at their embedding."""
    seen: list[Tensor] = []

    def watch(_: nn.Module, __: Any, out: Tensor) -> Tensor:
        if seen:
            return out
        seen.append(out.detach().requires_grad_())
        return seen[0]

    call = case.whole()
    floating = not isinstance(call, dict) and call[0].is_floating_point()
    training = case.model.training
    case.model.eval()
    hook = None
    try:
        with torch.enable_grad():
            if floating:
                seen.append(call[0].detach().clone().requires_grad_())
                out = case.model(seen[0], *call[1:])
            else:
                hook = _embedding(case.model).register_forward_hook(watch)
                out = case.model(**call) if isinstance(call, dict) else case.model(*call)
            logits = logits_of(out)[0]
            if logits.dim() == 2:  # of what comes after every position
                logits = logits[-1 if case.target is None else case.target]
            (slope,) = torch.autograd.grad(logits[logits.argmax()], seen[0])
    finally:
        case.model.train(training)
        if hook is not None:
            hook.remove()
    product = (slope * seen[0].detach()).double()
    if not case.exact:
        by_place = product[0].sum(0).flatten()
    else:
        by_place = product.reshape(-1, product.shape[-1]).sum(-1)
    values = by_place.cpu().numpy()
    if len(values) != case.length:  # rows of packed sequences: the valid positions in order
        placed = np.zeros(case.length)
        valid = sorted(place for unit in case.units for place in unit)
        kept = valid if len(valid) == len(values) else list(range(len(values)))
        placed[kept] = values
        values = placed
    return np.abs([values[list(unit)].sum() for unit in case.units])


def _embedding(model: nn.Module) -> nn.Module:
    """The first embedding of tokens."""
    for module in model.modules():
        if isinstance(module, nn.Embedding) or type(module).__name__ == "TokenEmbedding":
            return module
    raise ValueError(f"{type(model).__name__} has no embedding of tokens; expected one")


def _ranks(cost: Array) -> Array:
    found = np.empty(len(cost))
    found[np.argsort(cost, kind="stable")] = np.arange(len(cost))
    return found
