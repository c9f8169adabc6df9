"""What counting alone predicts: the figures that a model has to beat."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from .sets import EventSet, Floats, Integers

Figures = dict[str, float]
ADDED = 0.1  # to every count, so that nothing is impossible
CELLS = 2**22  # chances that are formed at a time
BACK_OFF = 2.0  # counts that the shorter context is worth


def baselines(train: EventSet, test: EventSet) -> dict[str, Figures]:
    """Accuracy and mean negative log-likelihood in nats of the next type, of every event but the
    first of each test sequence: the most frequent type, the last type again, and tables of the
    types that followed the last one (bigram) or the last two (trigram) in the training set. And of
    the gap: one log-normal distribution for all, in the units of the data."""
    kinds = len(train.names)
    context, target = _pairs(test, kinds)
    own_context, own_target = _pairs(train, kinds)
    shares = np.bincount(own_target, minlength=kinds) + ADDED
    shares = shares / shares.sum()
    pair, own_pair = (c[:, 0] * (kinds + 1) + c[:, 1] for c in (context, own_context))
    after_one = _Followers(own_context[:, 1], own_target, kinds)
    after_two = _Followers(own_pair, own_target, kinds)
    figures = {name: np.zeros(2) for name in ("majority", "bigram", "trigram")}  # right, nats
    step = max(1, CELLS // kinds)
    for first in range(0, len(target), step):
        part = slice(first, first + step)
        unigram = np.broadcast_to(shares, (len(target[part]), kinds))
        bigram = _smooth(after_one.counts(context[part, 1]), unigram)
        trigram = _smooth(after_two.counts(pair[part]), bigram)
        for name, chances in zip(figures, (unigram, bigram, trigram), strict=True):
            figures[name] += _sums(chances, target[part])
    log = np.log(np.maximum(train.gaps, train.gap_scales().least))
    at = np.log(np.maximum(test.gaps, train.gap_scales().least))
    spread = max(float(log.std()), 1e-9)
    density = -0.5 * ((at - log.mean()) / spread) ** 2 - math.log(spread * math.sqrt(2 * math.pi))
    found = {
        name: {"accuracy": float(right / len(target)), "loss": float(nats / len(target))}
        for name, (right, nats) in figures.items()
    }
    return {
        "majority": found["majority"],
        "repeat": {"accuracy": float(np.mean(context[:, 1] == target))},
        "bigram": found["bigram"],
        "trigram": found["trigram"],
        "log-normal": {"gap_loss": float(-(density - at).mean())},
    }


def _pairs(data: EventSet, nothing: int) -> tuple[Integers, Integers]:
    """The last two types before each predicted event (E, 2), and its type (E,)."""
    contexts, targets = [], []
    for types in data.types:
        before = np.concatenate([[nothing], types[:-2]]) if len(types) > 1 else types[:0]
        contexts.append(np.stack([before, types[:-1]], 1))
        targets.append(types[1:])
    return np.concatenate(contexts), np.concatenate(targets)


class _Followers:
    """How often each type followed a context. Only what occurred is kept: of k types there are k^3
    triples, of which a training set has few."""

    def __init__(self, context: Integers, target: Integers, kinds: int) -> None:
        self.kinds = kinds
        pairs, self._times = np.unique(context * kinds + target, return_counts=True)
        self._contexts, self._types = pairs // kinds, pairs % kinds

    def counts(self, context: Integers) -> Floats:
        """(E, kinds) of contexts (E,)."""
        begin, end = (np.searchsorted(self._contexts, context, side) for side in ("left", "right"))
        number = end - begin
        row = np.repeat(np.arange(len(context)), number)
        within = np.arange(len(row)) - np.repeat(np.cumsum(number) - number, number)
        at = np.repeat(begin, number) + within
        found = np.zeros((len(context), self.kinds))
        found[row, self._types[at]] = self._times[at]
        return found


def _smooth(counts: Floats, shorter: npt.NDArray[np.float64]) -> Floats:
    total = counts.sum(1, keepdims=True)
    mixed: Floats = (counts + BACK_OFF * shorter) / (total + BACK_OFF)
    return mixed


def _sums(chances: Floats, target: Integers) -> Floats:
    """How many of the likeliest types are right, and the nats of all."""
    own = chances[np.arange(len(target)), target]
    return np.array([np.sum(chances.argmax(1) == target), -np.log(own).sum()])
