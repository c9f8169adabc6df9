"""Who looks at whom: attention between groups of positions, against what uniform attention gives.

    F_ab = (1 / |a|) sum_{i in a} sum_{j in b} K_ij          where the rows of K sum to 1
    F_ab = sum_{i in a, j in b} K_ij^2 / sum_{i in a, j} K_ij^2      of other (signed) kernels

Published measures of the flow between modalities (Xue et al., NeurIPS 2021) grow with the size of
the group that is looked at: uniform attention has F_ab = |b| / N. Beside it stands the lift,
F_ab / (|b| / N), which is 1 for uniform attention whatever the sizes. Both are linear in N for
kernels that come as factors. How much mass goes somewhere does not say what it does there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..runs.tables import aligned
from ..theory.factors import Kernel, KernelFactors
from .capture import Found, calls, find_attentions, run
from .readers import Call

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Measure = Literal["mass", "energy"]

_ROWS_OF_ONE = 1e-3  # how far row sums may be from 1


class HeadFlow(NamedTuple):
    """A head and its lift from one group to another, the mean over inputs."""

    layer: int
    name: str
    head: int
    lift: float
    share: float


@dataclass(frozen=True, eq=False)
class LayerFlow:
    """One attention: `share (inputs, heads, G, G)` is F, `expected (inputs, G, G)` what uniform
    attention gives; NaN where an input has no position of a group. `measure` says which F."""

    name: str
    kind: str
    measure: Measure
    share: Array
    expected: Array

    def flow(self) -> Array:
        """F (heads, G, G), the mean over the inputs that have both groups."""
        return np.asarray(np.nanmean(self.share, 0))

    def lift(self) -> Array:
        """F over that of uniform attention (heads, G, G)."""
        return np.asarray(self.flow() / np.nanmean(self.expected, 0))

    def asymmetry(self) -> Array:
        """F_ab - F_ba (heads, G, G)."""
        found = self.flow()
        return np.asarray(found - found.swapaxes(-1, -2))


@dataclass(frozen=True, eq=False)
class Flow:
    """The attentions of a model by layer; `names` of the groups; `skipped`: {name: reason}."""

    layers: tuple[LayerFlow, ...]
    names: tuple[str, ...]
    skipped: dict[str, str] = field(default_factory=dict)

    def ranked(self, source: str | int, target: str | int) -> list[HeadFlow]:
        """All heads by their lift from `source` to `target`, the largest first."""
        a, b = self._group(source), self._group(target)
        found = [
            HeadFlow(number, one.name, head, float(lift), float(share))
            for number, one in enumerate(self.layers)
            for head, (lift, share) in enumerate(
                zip(one.lift()[:, a, b], one.flow()[:, a, b], strict=True)
            )
        ]
        return sorted(found, key=lambda one: -one.lift)

    def to_dict(self) -> dict[str, Any]:
        """Numbers, lists and strings only: ready for JSON; None where nothing is known."""
        layers = [
            {
                "name": one.name,
                "kind": one.kind,
                "measure": one.measure,
                "inputs": len(one.share),
                "share": _plain(one.flow()),
                "lift": _plain(one.lift()),
            }
            for one in self.layers
        ]
        return {"groups": list(self.names), "layers": layers, "skipped": dict(self.skipped)}

    def __str__(self) -> str:
        pairs = [(a, b) for a in range(len(self.names)) for b in range(len(self.names)) if a != b]
        head = ["layer", "attention", "of", "head"]
        rows = [[*head, *(f"{self.names[a]} -> {self.names[b]}" for a, b in pairs)]]
        for one in self.layers:
            flow, lift = one.flow(), one.lift()
            for h in range(len(flow)):
                cells = [f"{flow[h, a, b]:.3f} (x {lift[h, a, b]:.2f})" for a, b in pairs]
                rows.append([one.name, one.kind, one.measure, str(h), *cells])
        lines = aligned(rows)
        lines += [f"skipped {name}: {reason}" for name, reason in self.skipped.items()]
        return "\n".join(lines)

    def _group(self, given: str | int) -> int:
        if isinstance(given, str) and given in self.names:
            return self.names.index(given)
        if isinstance(given, int) and 0 <= given < len(self.names):
            return given
        raise ValueError(f"the group is {given!r}; expected one of {', '.join(self.names)}")


@torch.no_grad()
def attention_flow(
    model_or_attention: nn.Module, inputs: Any, groups: Any, *, names: Sequence[str] | None = None
) -> Flow:
    """The flow between groups of positions, by layer and head.

    `inputs` as `spectrum` takes them. `groups`: for every position the number of its group, from
    0; -1 is a position of no group, which is looked at all the same. An array (N,) for all inputs,
    (B, N) for one call, or a list of these, one for each call; or a number of equal parts of what
    each attention sees, from the first position to the last. What padding hides takes no part.
    Attentions that see another number of positions (tokens of a convolution, another sequence) are
    skipped with that reason. `names`: those of the groups.
    """
    given = list(calls(inputs))
    marked = list(_groups(groups, len(given)))
    count = max((int(one) if one.ndim == 0 else 1 + int(one.max()) for one in marked), default=0)
    if count < 1:
        raise ValueError("all positions are of group -1; expected groups from 0")
    called = tuple(map(str, range(count))) if names is None else tuple(names)
    if len(called) < count:
        raise ValueError(f"names has {len(called)} names; expected {count}, one for each group")
    found = find_attentions(model_or_attention)
    if not found:
        raise ValueError(
            f"{type(model_or_attention).__name__} has no attention that is known here; expected "
            "one of this package, of torch, Hugging Face or timm"
        )
    records: dict[str, _Record] = {}
    place = iter(range(len(given)))
    current = [0]

    def numbered() -> Iterator[Any]:
        for at, (args, kwargs) in zip(place, given, strict=True):
            current[0] = at
            yield kwargs if kwargs else args

    def see(one: Found, call: Call, out: Any) -> None:
        record = records.setdefault(one.name, _Record(one, len(called)))
        record.add(one.reader.kernels(one.module, call, out), marked[current[0]])

    skipped = run(model_or_attention, found, numbered(), see)
    layers = tuple(record.result() for name, record in records.items() if name not in skipped)
    return Flow(layers, called, skipped)


class _Record:
    """What was seen of one attention, sample by sample."""

    def __init__(self, found: Found, groups: int) -> None:
        self.found, self.groups = found, groups
        self.measure: Measure | None = None
        self.share: list[Array] = []
        self.expected: list[Array] = []

    def add(self, samples: Iterator[list[Kernel]], groups: Integers) -> None:
        for number, heads in enumerate(samples):
            if groups.ndim == 2 and number >= len(groups):
                raise ValueError(
                    f"groups has {len(groups)} rows; expected one for each input of the call"
                )
            row = groups[number] if groups.ndim == 2 else groups
            valid = torch.stack([_seen(one) for one in heads]).any(0)
            at = _fitting(row, heads[0].shape[-2:], valid)
            if self.measure is None:
                self.measure = "mass" if all(rows_sum_to_one(one) for one in heads) else "energy"
            chosen = torch.where(valid, at, -2)  # padding
            members = torch.stack([chosen == g for g in range(self.groups)], 1).double()  # (N, G)
            shares = [_shares(one, members, valid, self.measure) for one in heads]
            self.share.append(torch.stack(shares).cpu().numpy())
            self.expected.append(_uniform(heads, members, valid).cpu().numpy())

    def result(self) -> LayerFlow:
        kind, measure = self.found.reader.kind, self.measure or "mass"
        share, expected = np.stack(self.share), np.stack(self.expected)
        return LayerFlow(self.found.name, kind, measure, share, expected)


def _shares(kernel: Kernel, members: Tensor, valid: Tensor, measure: Measure) -> Tensor:
    """F (G, G), NaN where a group is absent."""
    sizes = members.sum(0)
    absent = (sizes == 0)[:, None] | (sizes == 0)[None]
    if measure == "mass":
        looked = kernel.matvec(members.to(kernel.dtype)).double()  # (N, G), O(N p)
        found = members.mT @ looked / sizes[:, None]
        return found.masked_fill(absent, torch.nan)
    places = [members[:, g].nonzero()[:, 0] for g in range(members.shape[1])]
    every = valid.nonzero()[:, 0]
    energy = torch.stack(
        [torch.stack([kernel.block_energy(a, b).double() for b in places]) for a in places]
    )
    whole = torch.stack([kernel.block_energy(a, every).double() for a in places])
    return (energy / whole[:, None]).masked_fill(absent, torch.nan)


def _uniform(heads: list[Kernel], members: Tensor, valid: Tensor) -> Tensor:
    """F (G, G) of attention that is even over all it can see: all valid positions, or of causal
    attention those up to the query."""
    sizes = members.sum(0)
    if any(_is_triangle(one) for one in heads):
        before = members.cumsum(0) / valid.cumsum(0).clamp(min=1)[:, None]  # (N, G)
        found = members.mT @ before / sizes[:, None]
    else:
        found = (sizes / valid.sum().clamp(min=1)).expand(len(sizes), -1)
    absent = (sizes == 0)[:, None] | (sizes == 0)[None]
    return found.masked_fill(absent, torch.nan)


def _seen(kernel: Kernel) -> Tensor:
    """The positions (N,) that take part: the rows of the others are zero."""
    rows = kernel.a if isinstance(kernel, KernelFactors) else kernel.dense()
    return (rows != 0).any(-1)


def rows_sum_to_one(kernel: Kernel) -> bool:
    """Of all positions that take part."""
    sums = kernel.row_sums()[_seen(kernel)]
    return bool(((sums - 1).abs() < _ROWS_OF_ONE).all())


def _is_triangle(kernel: Kernel) -> bool:
    """Whether nobody sees what comes later. Factors never are triangles."""
    if isinstance(kernel, KernelFactors):
        return False
    dense = kernel.dense()
    return len(dense) > 1 and not bool(dense.triu(1).any())


def _fitting(groups: Integers, shape: tuple[int, ...], valid: Tensor) -> Tensor:
    """The groups of the positions that an attention sees; what is cut off must be of no group."""
    queries, keys = shape
    if queries != keys:
        raise ValueError(f"{queries} positions look at {keys} others; expected self-attention")
    if groups.ndim == 0:  # so many equal parts
        return (valid.cumsum(0) - 1).clamp(min=0) * int(groups) // valid.sum().clamp(min=1)
    if len(groups) < queries or (groups[queries:] >= 0).any():
        raise ValueError(f"it sees {queries} positions; expected {len(groups)}, those of groups")
    return torch.from_numpy(groups[:queries]).to(valid.device)


def _groups(given: Any, count: int) -> Iterator[Integers]:
    """One array of groups for each call."""
    several = isinstance(given, list | tuple) and len(given) and np.ndim(given[0]) > 0
    parts = list(given) if several else [given] * count
    if len(parts) != count:
        raise ValueError(f"groups has {len(parts)} parts; expected {count}, one for each call")
    for part in parts:
        found = np.asarray(part)
        if found.ndim == 0 and np.issubdtype(found.dtype, np.integer) and found > 0:
            yield found.astype(np.int64)
            continue
        if found.ndim not in (1, 2) or not np.issubdtype(found.dtype, np.integer):
            raise ValueError(
                f"groups are {found.dtype} of shape {found.shape}; expected integers (N,) or "
                "(B, N), or a number of parts"
            )
        yield found.astype(np.int64)


def _plain(values: Array) -> Any:
    return [None if np.isnan(v) else float(v) for v in values] if values.ndim == 1 else [
        _plain(one) for one in values
    ]  # fmt: skip
