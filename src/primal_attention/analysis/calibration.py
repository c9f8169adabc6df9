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
from .stated import Floats, Integers, Stated, checked, draws, entropy, interval, probabilities_of

__all__ = [
    "Bin", "Calibration", "Difference", "Figure", "auroc", "brier", "compare", "ece", "ensemble",
    "fit_temperature", "measure", "nll", "out_of_distribution", "reliability", "risk_coverage",
    "softmax", "tempered", "uncertainty",
]  # fmt: skip

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
    groups: npt.ArrayLike | None = None,
    bins: int = 15,
    resamples: int = 1000,
    seed: int = 0,
) -> Calibration:
    """Accuracy, ECE, NLL, Brier, AURC with intervals; the reliability diagram; the risk-coverage
    curve. `resamples` of the bootstrap; 0 gives intervals of no width. `groups` (cases,): cases
    that are not independent, such as events of one sequence, and are drawn together.

    Of several members that are asked alone, such as seeds, (members, cases, classes): the means of
    their figures and curves, over the same drawn cases, and their reliability diagrams together.
    """
    members = _members(probabilities, labels)
    return measure_stated(members, groups=groups, bins=bins, resamples=resamples, seed=seed)


def compare(
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    groups: npt.ArrayLike | None = None,
    bins: int = 15,
    resamples: int = 1000,
    seed: int = 0,
) -> dict[str, Difference]:
    """Second minus first, of every figure, with the interval of a paired bootstrap: below 0 the
    second is better in all but accuracy, and it may be called so where `sure`. Members and groups
    as in `measure`; the numbers of members may differ."""
    p, q = _members(first, labels), _members(second, labels)
    if p[0].classes != q[0].classes:
        raise ValueError(f"second has {q[0].classes} classes; expected those of first")
    return compare_stated(p, q, groups=groups, bins=bins, resamples=resamples, seed=seed)


def measure_stated(
    members: Sequence[Stated],
    *,
    groups: npt.ArrayLike | None = None,
    bins: int = 15,
    resamples: int = 1000,
    seed: int = 0,
) -> Calibration:
    """`measure` where the classes are too many to keep all probabilities."""
    found, cases = _resampled(members, groups, bins, resamples, seed), len(members[0])
    return Calibration(
        cases,
        members[0].classes,
        {name: Figure(float(a[0]), *interval(a)) for name, a in found.items()},
        _diagram(Stated.joined(members), bins),
        np.arange(1, cases + 1) / cases,
        np.mean([_risk(one.confidence, 1.0 - one.right) for one in members], 0),
    )


def compare_stated(
    first: Sequence[Stated],
    second: Sequence[Stated],
    *,
    groups: npt.ArrayLike | None = None,
    bins: int = 15,
    resamples: int = 1000,
    seed: int = 0,
) -> dict[str, Difference]:
    """`compare` likewise."""
    a, b = (_resampled(one, groups, bins, resamples, seed) for one in (first, second))
    gaps = {name: b[name] - a[name] for name in a}
    return {name: Difference(float(gap[0]), *interval(gap)) for name, gap in gaps.items()}


# -- figures ---------------------------------------------------------------------------------------


def nll(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """The mean of -log p of the true class."""
    return float(Stated.of(probabilities, labels).losses.mean())


def brier(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """The mean over cases of `sum_c (p_c - [c is true])^2`, between 0 and 2."""
    return float(Stated.of(probabilities, labels).squares.mean())


def ece(probabilities: npt.ArrayLike, labels: npt.ArrayLike, *, bins: int = 15) -> float:
    """The expected calibration error: `sum_b (n_b / n) |accuracy_b - confidence_b|` over bins of
    equal width of the largest probability."""
    one = Stated.of(probabilities, labels)
    return _ece(one.right - one.confidence, _places(one.confidence, bins), bins)


def reliability(
    probabilities: npt.ArrayLike, labels: npt.ArrayLike, *, bins: int = 15
) -> tuple[Bin, ...]:
    """The reliability diagram: bins of equal width of the largest probability, none left out."""
    return _diagram(Stated.of(probabilities, labels), bins)


def risk_coverage(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Coverage k / n and the error rate among the k most confident cases, k = 1 ... n. Cases of
    equal confidence share their errors evenly, so that their order does not matter."""
    one = Stated.of(probabilities, labels)
    return np.arange(1, len(one) + 1) / len(one), _risk(one.confidence, 1.0 - one.right)


def uncertainty(probabilities: npt.ArrayLike) -> Floats:
    """The entropy of each case (cases,), in nats: the score by which the unfamiliar is told."""
    return entropy(probabilities_of(probabilities))


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
    return told_apart(uncertainty(familiar), uncertainty(strange), resamples=resamples, seed=seed)


def told_apart(
    low: npt.ArrayLike, high: npt.ArrayLike, *, resamples: int = 1000, seed: int = 0
) -> Figure:
    """The AUROC of scores (cases,) of two kinds of cases, with its interval."""
    a, b, rng = np.asarray(low), np.asarray(high), np.random.default_rng(seed)
    drawn = [auroc(rng.choice(a, len(a)), rng.choice(b, len(b))) for _ in range(resamples)]
    value = auroc(a, b)
    return Figure(value, *interval([value, *drawn]))


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
    checked(softmax(z), y)
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
    found = [probabilities_of(one) for one in members]
    if not found or any(one.shape != found[0].shape for one in found):
        shapes = [one.shape for one in found]
        raise ValueError(f"the members have shapes {shapes}; expected one shape, and a member")
    return np.asarray(np.mean(found, 0))


# -- parts -----------------------------------------------------------------------------------------


def _resampled(
    members: Sequence[Stated], groups: npt.ArrayLike | None, bins: int, resamples: int, seed: int
) -> Mapping[str, Floats]:
    """Every figure (1 + resamples,): of the cases, then of cases drawn from them."""
    if bins < 1 or resamples < 0:
        raise ValueError(f"bins is {bins} and resamples {resamples}; expected 1 and 0 at least")
    each = [_by_case(one, bins) for one in members]
    columns = np.array(
        [
            np.mean([figures(rows) for figures in each], 0)
            for rows in draws(len(members[0]), resamples, seed, groups)
        ]
    ).T
    return dict(zip(TITLES, columns, strict=True))


def _by_case(one: Stated, bins: int) -> Callable[[Integers], list[float]]:
    """The figures of chosen cases, in the order of TITLES."""
    places, gaps = _places(one.confidence, bins), one.right - one.confidence

    def figures(rows: Integers) -> list[float]:
        wrong = 1.0 - one.right[rows]
        aurc = float(_risk(one.confidence[rows], wrong).mean())
        error = _ece(gaps[rows], places[rows], bins)
        means = [float(x.mean()) for x in (1.0 - wrong, one.losses[rows], one.squares[rows])]
        best = _best_aurc(int(wrong.sum()), len(rows))
        return [means[0], error, means[1], means[2], aurc, aurc - best]

    return figures


def _members(given: npt.ArrayLike, labels: npt.ArrayLike) -> list[Stated]:
    """Of probabilities (cases, classes), or (members, cases, classes)."""
    p = np.asarray(given, dtype=np.float64)
    p = p[None] if p.ndim == 2 else p
    if p.ndim != 3 or not len(p):
        raise ValueError(f"probabilities have shape {p.shape}; expected (cases, classes)")
    return [Stated.of(one, labels) for one in p]


def _diagram(one: Stated, bins: int) -> tuple[Bin, ...]:
    places, found = _places(one.confidence, bins), []
    for b in range(bins):
        inside = places == b
        count = int(inside.sum())
        means = (one.confidence[inside].mean(), one.right[inside].mean()) if count else (0.0, 0.0)
        found.append(Bin(b / bins, (b + 1) / bins, count, float(means[0]), float(means[1])))
    return tuple(found)


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
