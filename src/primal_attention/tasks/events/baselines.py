"""What counting alone predicts: the figures that a model has to beat."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from .sets import EventSet, Floats, Integers

Figures = dict[str, float]
ADDED = 0.1  # to every count, so that nothing is impossible
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
    unigram = np.broadcast_to(shares, (len(target), kinds))
    two = _counts(own_context[:, 1], own_target, kinds + 1, kinds)
    bigram = _smooth(two[context[:, 1]], unigram)
    pair, own_pair = (c[:, 0] * (kinds + 1) + c[:, 1] for c in (context, own_context))
    three = _counts(own_pair, own_target, (kinds + 1) ** 2, kinds)
    trigram = _smooth(three[pair], bigram)
    log = np.log(np.maximum(train.gaps, train.gap_scales().least))
    at = np.log(np.maximum(test.gaps, train.gap_scales().least))
    spread = max(float(log.std()), 1e-9)
    density = -0.5 * ((at - log.mean()) / spread) ** 2 - math.log(spread * math.sqrt(2 * math.pi))
    return {
        "majority": _figures(unigram, target),
        "repeat": {"accuracy": float(np.mean(context[:, 1] == target))},
        "bigram": _figures(bigram, target),
        "trigram": _figures(trigram, target),
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


def _counts(context: Integers, target: Integers, contexts: int, kinds: int) -> Floats:
    flat = np.bincount(context * kinds + target, minlength=contexts * kinds)
    return flat.reshape(contexts, kinds).astype(np.float64)


def _smooth(counts: Floats, shorter: npt.NDArray[np.float64]) -> Floats:
    total = counts.sum(1, keepdims=True)
    mixed: Floats = (counts + BACK_OFF * shorter) / (total + BACK_OFF)
    return mixed


def _figures(shares: Floats, target: Integers) -> Figures:
    own = shares[np.arange(len(target)), target]
    return {
        "accuracy": float(np.mean(shares.argmax(1) == target)),
        "loss": float(-np.log(own).mean()),
    }
