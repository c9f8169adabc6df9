"""Series to classify: waves, and sets of the archive as aeon would give them."""

import numpy as np

from primal_attention.tasks import get_task


def waves(cases=24, channels=2, length=12, seed=0, *, phases=1.0, noise=0.1):
    """Two classes that differ in their frequency; X (cases, channels, length) and 0 or 1."""
    rng = np.random.default_rng(seed)
    y = np.arange(cases) % 2
    time = np.arange(length) * np.where(y == 0, 0.5, 1.5)[:, None, None]
    phase = rng.uniform(0, phases, (cases, channels, 1))
    return np.sin(time + phase) + noise * rng.standard_normal((cases, channels, length)), y


def cut(X, least, seed=0):
    """Series of `least` positions and more, one of them whole."""
    lengths = np.random.default_rng(seed).integers(least, X.shape[2] + 1, len(X))
    lengths[0] = X.shape[2]
    return [x[:, :n] for x, n in zip(X, lengths, strict=True)]


def archive(name):
    """Training and test set of the archive."""
    parts = get_task(f"uea/{name}").load()
    return [
        ([x.T for x in part.series], np.array(part.classes)[part.labels])
        for part in (parts["train"], parts["test"])
    ]
