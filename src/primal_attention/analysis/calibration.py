"""Which predictions may be trusted: how far stated probabilities are true, and what improves them.

    found = calibration.measure(probabilities, labels)         # ECE, NLL, Brier, AURC, intervals
    print(found)
    calibration.compare(before, after, labels)["ece"]          # paired: better where 0 is outside

Arrays are numpy's, (cases, classes) and (cases,); nothing here needs torch. Intervals are
percentiles of a bootstrap over cases, and comparisons draw the same cases for both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..runs.tables import aligned

__all__ = [
    "Bin", "Calibration", "Difference", "Figure", "auroc", "brier", "compare", "ece", "ensemble",
    "fit_temperature", "measure", "nll", "out_of_distribution", "reliability", "risk_coverage",
    "softmax", "tempered", "uncertainty",
]  # fmt: skip

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

LEAST = 1e-12  # a probability below it counts as this in a logarithm
TITLES = {
    "accuracy": "accuracy", "ece": "ECE", "nll": "NLL", "brier": "Brier", "aurc": "AURC",
    "excess_aurc": "excess AURC",
}  # fmt: skip


@dataclass(frozen=True)
class Figure:
    """A number with its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}]"


@dataclass(frozen=True)
class Difference(Figure):
    """Of a second set of probabilities to a first, on the same cases."""

    @property
    def sure(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Bin:
    """The cases whose confidence lies in (low, high]; means of confidence and accuracy."""

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class Calibration:
    """What `measure` finds; `coverage` and `risk` are the curve that AURC is the area under."""

    cases: int
    classes: int
    figures: dict[str, Figure]
    bins: tuple[Bin, ...]
    coverage: Floats
    risk: Floats

    def __getitem__(self, name: str) -> Figure:
        return self.figures[name]

    def to_dict(self) -> dict[str, Any]:
        """Numbers, lists and strings only: ready for JSON. The curve at 101 places at most."""
        places = np.unique(np.linspace(0, self.cases - 1, 101).round().astype(int))
        return {
            "cases": self.cases,
            "classes": self.classes,
            "figures": {name: vars(one) for name, one in self.figures.items()},
            "bins": [vars(one) for one in self.bins],
            "coverage": self.coverage[places].tolist(),
            "risk": self.risk[places].tolist(),
        }

    def __str__(self) -> str:
        rows = [["", "value", "95 % interval"]]
        for name, one in self.figures.items():
            rows.append([TITLES[name], f"{one.value:.4f}", f"{one.low:.4f} to {one.high:.4f}"])
        return "\n".join(aligned(rows))


def measure(
    probabilities: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    bins: int = 15,
    resamples: int = 1000,
    seed: int = 0,
) -> Calibration:
    """Accuracy, ECE, NLL, Brier, AURC with intervals; the reliability diagram; the risk-coverage
    curve. `resamples` of the bootstrap; 0 gives intervals of no width.

    Of several members that are asked alone, such as seeds, (members, cases, classes): the means of
    their figures and curves, over the same drawn cases, and their reliability diagrams together.
    """
    members, y = _members(probabilities, labels)
    found = _resampled(members, y, bins, resamples, seed)
    return Calibration(
        len(y),
        members.shape[2],
        {name: Figure(float(a[0]), *_percentiles(a, a[0])) for name, a in found.items()},
        reliability(np.concatenate(members), np.tile(y, len(members)), bins=bins),
        np.arange(1, len(y) + 1) / len(y),
        np.mean([risk_coverage(p, y)[1] for p in members], 0),
    )


def compare(
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    bins: int = 15,
    resamples: int = 1000,
    seed: int = 0,
) -> dict[str, Difference]:
    """Second minus first, of every figure, with the interval of a paired bootstrap: below 0 the
    second is better in all but accuracy, and it may be called so where `sure`. Members as in
    `measure`; their numbers may differ."""
    (p, y), (q, _) = _members(first, labels), _members(second, labels)
    if p.shape[1:] != q.shape[1:]:
        raise ValueError(f"second has shape {q.shape[1:]}; expected that of first, {p.shape[1:]}")
    a, b = (_resampled(one, y, bins, resamples, seed) for one in (p, q))
    whole = {name: b[name][0] - a[name][0] for name in a}
    return {
        name: Difference(float(whole[name]), *_percentiles(b[name] - a[name], whole[name]))
        for name in a
    }


# -- figures ---------------------------------------------------------------------------------------


def nll(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """The mean of -log p of the true class."""
    p, y = _checked(probabilities, labels)
    return float(-np.log(_true(p, y)).mean())


def brier(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """The mean over cases of `sum_c (p_c - [c is true])^2`, between 0 and 2."""
    p, y = _checked(probabilities, labels)
    return float(_squares(p, y).mean())


def ece(probabilities: npt.ArrayLike, labels: npt.ArrayLike, *, bins: int = 15) -> float:
    """The expected calibration error: `sum_b (n_b / n) |accuracy_b - confidence_b|` over bins of
    equal width of the largest probability."""
    p, y = _checked(probabilities, labels)
    confidence, right = p.max(1), (p.argmax(1) == y).astype(float)
    return _ece(right - confidence, _places(confidence, bins), bins)


def reliability(
    probabilities: npt.ArrayLike, labels: npt.ArrayLike, *, bins: int = 15
) -> tuple[Bin, ...]:
    """The reliability diagram: bins of equal width of the largest probability, none left out."""
    p, y = _checked(probabilities, labels)
    confidence, right = p.max(1), p.argmax(1) == y
    places, found = _places(confidence, bins), []
    for b in range(bins):
        inside = places == b
        count = int(inside.sum())
        means = (confidence[inside].mean(), right[inside].mean()) if count else (0.0, 0.0)
        found.append(Bin(b / bins, (b + 1) / bins, count, float(means[0]), float(means[1])))
    return tuple(found)


def risk_coverage(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Coverage k / n and the error rate among the k most confident cases, k = 1 ... n. Cases of
    equal confidence share their errors evenly, so that their order does not matter."""
    p, y = _checked(probabilities, labels)
    return np.arange(1, len(y) + 1) / len(y), _risk(p.max(1), (p.argmax(1) != y).astype(float))


def uncertainty(probabilities: npt.ArrayLike) -> Floats:
    """The entropy of each case (cases,), in nats: the score by which the unfamiliar is told."""
    p = _probabilities(probabilities)
    return np.asarray(-(p * np.log(np.maximum(p, LEAST))).sum(1))


def auroc(negative: npt.ArrayLike, positive: npt.ArrayLike) -> float:
    """The chance that a positive case has the higher score than a negative one; ties count half."""
    low, high = (np.asarray(one, dtype=float).ravel() for one in (negative, positive))
    if not len(low) or not len(high):
        raise ValueError(f"{len(low)} negative and {len(high)} positive scores; expected some each")
    ordered = np.sort(low)
    below = np.searchsorted(ordered, high, "left") + np.searchsorted(ordered, high, "right")
    return float(below.mean() / (2 * len(low)))


def out_of_distribution(
    familiar: npt.ArrayLike, strange: npt.ArrayLike, *, resamples: int = 1000, seed: int = 0
) -> Figure:
    """The AUROC of entropy between probabilities of familiar and of strange cases, (cases, classes)
    each: 1 where every strange case is less certain than every familiar one, 0.5 by chance."""
    a, b = uncertainty(familiar), uncertainty(strange)
    rng = np.random.default_rng(seed)
    drawn = [auroc(rng.choice(a, len(a)), rng.choice(b, len(b))) for _ in range(resamples)]
    value = auroc(a, b)
    return Figure(value, *_percentiles(np.array([value, *drawn]), value))


# -- what improves them ----------------------------------------------------------------------------


def softmax(logits: npt.ArrayLike) -> Floats:
    """Probabilities (cases, classes) of logits."""
    z = np.asarray(logits, dtype=np.float64)
    z = np.exp(z - z.max(-1, keepdims=True))
    return np.asarray(z / z.sum(-1, keepdims=True))


def fit_temperature(logits: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """The T > 0 with the least NLL of `softmax(logits / T)` (Guo et al., ICML 2017), on cases that
    are not those it is judged on. The NLL is convex in 1 / T: found by bisection of its slope, and
    between 1e-3 and 1e3."""
    z, y = np.asarray(logits, dtype=np.float64), np.asarray(labels)
    _checked(softmax(z), y)
    z = z - z.max(1, keepdims=True)
    true = z[np.arange(len(y)), y]

    def slope(factor: float) -> float:  # of the NLL in 1 / T
        return float(((softmax(factor * z) * z).sum(1) - true).mean())

    low, high = np.log(1e-3), np.log(1e3)
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(np.exp(middle)) <= 0 else (low, middle)
    return float(np.exp(-(low + high) / 2))


def tempered(logits: npt.ArrayLike, temperature: float) -> Floats:
    """softmax(logits / T): the same order of classes, softer or sharper."""
    if not temperature > 0:
        raise ValueError(f"temperature is {temperature}; expected a number above 0")
    return softmax(np.asarray(logits, dtype=np.float64) / temperature)


def ensemble(members: Sequence[npt.ArrayLike]) -> Floats:
    """The mean of the members' probabilities, (cases, classes) each: of seeds, or of draws."""
    found = [_probabilities(one) for one in members]
    if not found or any(one.shape != found[0].shape for one in found):
        shapes = [one.shape for one in found]
        raise ValueError(f"the members have shapes {shapes}; expected one shape, and a member")
    return np.asarray(np.mean(found, 0))


# -- parts -----------------------------------------------------------------------------------------


def _resampled(
    members: Floats, y: Integers, bins: int, resamples: int, seed: int
) -> Mapping[str, Floats]:
    """Every figure (1 + resamples,): of the cases, then of cases drawn from them."""
    if bins < 1 or resamples < 0:
        raise ValueError(f"bins is {bins} and resamples {resamples}; expected 1 and 0 at least")
    rng, each = np.random.default_rng(seed), [_by_case(p, y, bins) for p in members]
    draws = [np.arange(len(y)), *(rng.integers(len(y), size=len(y)) for _ in range(resamples))]
    columns = np.array([np.mean([figures(rows) for figures in each], 0) for rows in draws]).T
    return dict(zip(TITLES, columns, strict=True))


def _by_case(p: Floats, y: Integers, bins: int) -> Callable[[Integers], list[float]]:
    """The figures of chosen cases, in the order of TITLES."""
    confidence, right = p.max(1), (p.argmax(1) == y).astype(float)
    logs, squares = -np.log(_true(p, y)), _squares(p, y)
    places, gaps = _places(confidence, bins), right - confidence

    def figures(rows: Integers) -> list[float]:
        wrong = 1.0 - right[rows]
        aurc = float(_risk(confidence[rows], wrong).mean())
        error = _ece(gaps[rows], places[rows], bins)
        means = [float(one.mean()) for one in (1.0 - wrong, logs[rows], squares[rows])]
        best = _best_aurc(int(wrong.sum()), len(rows))
        return [means[0], error, means[1], means[2], aurc, aurc - best]

    return figures


def _members(given: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[Floats, Integers]:
    """Probabilities (members, cases, classes)."""
    p = np.asarray(given, dtype=np.float64)
    p = p[None] if p.ndim == 2 else p
    if p.ndim != 3 or not len(p):
        raise ValueError(f"probabilities have shape {p.shape}; expected (cases, classes)")
    found = [_checked(one, labels) for one in p]
    return np.stack([one for one, _ in found]), found[0][1]


def _percentiles(values: Floats, whole: float) -> tuple[float, float]:
    """The middle 95 % of resampled values, which begin with the value itself."""
    drawn = values[1:]
    if not len(drawn):
        return float(whole), float(whole)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(low), float(high)


def _ece(gaps: Floats, places: Integers, bins: int) -> float:
    return float(np.abs(np.bincount(places, gaps, minlength=bins)).sum() / len(gaps))


def _places(confidence: Floats, bins: int) -> Integers:
    """The bin (b / bins, (b + 1) / bins] of each case."""
    return np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)


def _risk(confidence: Floats, wrong: Floats) -> Floats:
    """The error rate among the k most confident; ties share their errors."""
    order = np.argsort(-confidence, kind="stable")
    ranked, errors = confidence[order], wrong[order]
    starts = np.flatnonzero(np.append(True, ranked[1:] != ranked[:-1]))
    counts = np.diff(np.append(starts, len(errors)))
    shared = np.repeat(np.add.reduceat(errors, starts) / counts, counts)
    return np.asarray(np.cumsum(shared) / np.arange(1, len(errors) + 1))


def _best_aurc(errors: int, cases: int) -> float:
    """That of a confidence that knows the errors: they come last."""
    last = np.arange(1, errors + 1)
    return float((last / (cases - errors + last)).sum() / cases)


def _true(p: Floats, y: Integers) -> Floats:
    return np.asarray(np.maximum(p[np.arange(len(y)), y], LEAST))


def _squares(p: Floats, y: Integers) -> Floats:
    return np.asarray((p**2).sum(1) - 2 * p[np.arange(len(y)), y] + 1.0)


def _probabilities(given: npt.ArrayLike) -> Floats:
    p = np.asarray(given, dtype=np.float64)
    if p.ndim != 2 or 0 in p.shape:
        raise ValueError(f"probabilities have shape {p.shape}; expected (cases, classes)")
    if not (np.isfinite(p).all() and (p >= 0).all() and np.allclose(p.sum(1), 1.0, atol=1e-4)):
        raise ValueError("a row of probabilities does not add up to 1; expected rows that do")
    return p


def _checked(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[Floats, Integers]:
    p, y = _probabilities(probabilities), np.asarray(labels)
    if y.shape != (len(p),) or not np.issubdtype(y.dtype, np.integer):
        raise ValueError(
            f"labels are {y.dtype} of shape {y.shape}; expected integers of shape ({len(p)},)"
        )
    if y.min() < 0 or y.max() >= p.shape[1]:
        raise ValueError(
            f"labels reach from {y.min()} to {y.max()}; expected 0 to {p.shape[1] - 1}"
        )
    return p, y.astype(np.int64)
