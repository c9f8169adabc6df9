"""Vector search: the first round, re-ranking without learning, and what a ranking is worth.

Vectors are compared by the cosine. A list is the first K of a base for one query, best first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
BLOCK = 1 << 23  # similarities formed at a time


def unit(vectors: Any) -> Floats:
    """Rows of length 1; a row of zeros stays."""
    rows = np.asarray(vectors, dtype=np.float64)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    found: Floats = rows / np.where(norms > 0, norms, 1.0)
    return found


def first_round(
    queries: Any, base: Any, k: int, *, leave_out: Any = None
) -> tuple[Integers, Floats]:
    """The k rows of the base (n, d) most similar to each query (q, d), best first, and their
    cosines, both (q, k). leave_out (q,): for each query a row that is not asked, such as itself.

    With faiss installed, large bases are searched by it; the result is the same.
    """
    asked, stored = unit(queries), unit(base)
    if not 1 <= k <= len(stored):
        raise ValueError(f"k is {k}; expected 1 to {len(stored)}, the vectors of the base")
    if leave_out is not None and k == len(stored):
        raise ValueError(f"k is {k} of {k} vectors, of which one is left out; expected fewer")
    more = k + (leave_out is not None)
    places, scores = _search(asked, stored, more)
    if leave_out is None:
        return places, scores
    out = np.asarray(leave_out)[:, None]
    keep = places != out
    keep[keep.all(1), -1] = False  # it was not found: then the last one goes
    shape = (len(asked), k)
    return places[keep].reshape(shape), scores[keep].reshape(shape)


def _search(asked: Floats, stored: Floats, k: int) -> tuple[Integers, Floats]:
    try:
        import faiss  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        faiss = None
    if faiss is not None and len(asked) * len(stored) > BLOCK:
        index = faiss.IndexFlatIP(stored.shape[1])
        index.add(stored.astype(np.float32))
        _, found = index.search(asked.astype(np.float32), k)
        exact = np.einsum("qd,qkd->qk", asked, stored[found])
        order = np.argsort(-exact, axis=1, kind="stable")
        return np.take_along_axis(found, order, 1), np.take_along_axis(exact, order, 1)
    places, scores = [], []
    for part in np.array_split(asked, max(1, len(asked) * len(stored) // BLOCK)):
        similar = part @ stored.T
        best = np.argpartition(-similar, k - 1, axis=1)[:, :k]
        values = np.take_along_axis(similar, best, 1)
        order = np.argsort(-values, axis=1, kind="stable")
        places.append(np.take_along_axis(best, order, 1))
        scores.append(np.take_along_axis(values, order, 1))
    return np.concatenate(places).astype(np.int64), np.concatenate(scores)


def expand_query(queries: Any, base: Any, *, top: int = 10, alpha: float = 3.0) -> Floats:
    """Query expansion (alpha-QE): every query with its first `top` neighbours in the base, each
    weighted by its cosine to the power alpha, (q, d) of length 1."""
    asked, stored = unit(queries), unit(base)
    places, scores = first_round(asked, stored, min(top, len(stored)))
    weights = np.clip(scores, 0.0, None) ** alpha
    return unit(asked + np.einsum("qk,qkd->qd", weights, stored[places]))


def reciprocal_scores(
    query: Floats, listed: Floats, *, k1: int = 20, k2: int = 6, share: float = 0.3
) -> Floats:
    """k-reciprocal re-ranking (Zhong et al. 2017) inside one list (K, d): `share` times the cosine,
    the rest the Jaccard similarity of neighbourhoods in which both count each other among their
    first k1, averaged over the first k2."""
    rows = np.concatenate([query[None], listed])
    similar = rows @ rows.T
    n = len(rows)
    k1, k2 = min(k1, n - 1), min(k2, n)
    order = np.argsort(-similar, axis=1, kind="stable")
    near = np.zeros((n, n), dtype=bool)
    np.put_along_axis(near, order[:, : k1 + 1], True, axis=1)
    mutual = near & near.T
    weights = np.where(mutual, np.exp(similar - 1.0), 0.0)
    weights /= weights.sum(1, keepdims=True)
    weights = weights[order[:, :k2]].mean(1)  # local expansion
    common = np.minimum(weights[0], weights[1:]).sum(1)
    scores: Floats = share * similar[0, 1:] + (1.0 - share) * common / (2.0 - common)
    return scores


def average_precision(relevant: npt.NDArray[np.bool_], total: int | None = None) -> float:
    """The mean over the relevant of a ranking (K,), best first, of the precision up to each;
    `total` relevant ones that are not in the list count as never found."""
    hits = np.flatnonzero(relevant)
    count = len(hits) if total is None else total
    if count == 0:
        return 0.0
    return float((np.arange(1, len(hits) + 1) / (hits + 1)).sum() / count)


def mean_average_precision(relevant: npt.NDArray[np.bool_], totals: Any = None) -> float:
    """The mean of `average_precision` over rankings (q, K); those without any relevant are left
    out."""
    counts = relevant.sum(1) if totals is None else np.asarray(totals)
    kept = np.flatnonzero(counts)
    if len(kept) == 0:
        raise ValueError("no query has anything relevant; expected at least one")
    return float(np.mean([average_precision(relevant[i], int(counts[i])) for i in kept]))


def ndcg(gains: Any, k: int | None = None) -> float:
    """The discounted cumulative gain of rankings (q, K) of gains, of the best order of each, up to
    place k; rankings without any gain are left out."""
    values = np.asarray(gains, dtype=np.float64)
    k = values.shape[1] if k is None else min(k, values.shape[1])
    discount = 1.0 / np.log2(np.arange(2, k + 2))
    found = values[:, :k] @ discount
    best = -np.sort(-values, axis=1)[:, :k] @ discount
    if not (best > 0).any():
        raise ValueError("no ranking has a gain; expected at least one")
    return float((found[best > 0] / best[best > 0]).mean())
