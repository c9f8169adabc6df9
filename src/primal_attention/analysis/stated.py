"""What figures of calibration need of every case: five numbers, however many classes there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

LEAST = 1e-12  # a probability below it counts as this in a logarithm


@dataclass(frozen=True, eq=False)
class Stated:
    """Of n cases, (n,) each: the largest probability, whether its class was the true one, -log p of
    the true class, `sum_c (p_c - [c is true])^2`, and the entropy in nats."""

    confidence: Floats
    right: Floats
    losses: Floats
    squares: Floats
    entropy: Floats
    classes: int

    @classmethod
    def of(cls, probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> Self:
        """From probabilities (n, classes) and labels (n,)."""
        p, y = checked(probabilities, labels)
        true = p[np.arange(len(y)), y]
        return cls(
            confidence=p.max(1),
            right=(p.argmax(1) == y).astype(float),
            losses=np.asarray(-np.log(np.maximum(true, LEAST))),
            squares=np.asarray((p**2).sum(1) - 2 * true + 1.0),
            entropy=entropy(p),
            classes=p.shape[1],
        )

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """One after the other."""
        names = [field.name for field in fields(cls) if field.name != "classes"]
        columns = {name: np.concatenate([getattr(one, name) for one in parts]) for name in names}
        return cls(**columns, classes=parts[0].classes)

    def __len__(self) -> int:
        return len(self.right)


def entropy(p: Floats) -> Floats:
    return np.asarray(-(p * np.log(np.maximum(p, LEAST))).sum(1))


def draws(
    cases: int, resamples: int, seed: int, groups: npt.ArrayLike | None = None
) -> Iterator[Integers]:
    """The rows of all cases, then of `resamples` bootstraps. With `groups` (cases,), such as the
    sequence that an event is of, whole groups are drawn: what goes together stays together."""
    rng = np.random.default_rng(seed)
    yield np.arange(cases)
    if groups is None:
        for _ in range(resamples):
            yield rng.integers(cases, size=cases)
        return
    members = _members(np.asarray(groups), cases)
    for _ in range(resamples):
        chosen = rng.integers(len(members), size=len(members))
        yield np.concatenate([members[i] for i in chosen])


def interval(values: Any) -> tuple[float, float]:
    """The middle 95 % of resampled values, which begin with the value itself; that one alone
    without resamples."""
    drawn = np.asarray(values)[1:]
    if not len(drawn):
        return float(values[0]), float(values[0])
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(low), float(high)


def probabilities_of(given: npt.ArrayLike) -> Floats:
    p = np.asarray(given, dtype=np.float64)
    if p.ndim != 2 or 0 in p.shape:
        raise ValueError(f"probabilities have shape {p.shape}; expected (cases, classes)")
    if not (np.isfinite(p).all() and (p >= 0).all() and np.allclose(p.sum(1), 1.0, atol=1e-4)):
        raise ValueError("a row of probabilities does not add up to 1; expected rows that do")
    return p


def checked(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[Floats, Integers]:
    p, y = probabilities_of(probabilities), np.asarray(labels)
    if y.shape != (len(p),) or not np.issubdtype(y.dtype, np.integer):
        raise ValueError(
            f"labels are {y.dtype} of shape {y.shape}; expected integers of shape ({len(p)},)"
        )
    if y.min() < 0 or y.max() >= p.shape[1]:
        raise ValueError(
            f"labels reach from {y.min()} to {y.max()}; expected 0 to {p.shape[1] - 1}"
        )
    return p, y.astype(np.int64)


def _members(groups: npt.NDArray[Any], cases: int) -> list[Integers]:
    """The rows of each group; of a single group every row is one of its own."""
    if groups.shape != (cases,):
        raise ValueError(f"groups have shape {groups.shape}; expected ({cases},)")
    order = np.argsort(groups, kind="stable")
    ends = np.flatnonzero(np.diff(groups[order])) + 1
    found = np.split(order, ends)
    return found if len(found) > 1 else list(order[:, None])
