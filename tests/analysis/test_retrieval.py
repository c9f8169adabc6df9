"""Vector search and what a ranking is worth."""

import numpy as np
import pytest

from primal_attention import expand_query
from primal_attention.analysis.retrieval import (
    average_precision,
    first_round,
    mean_average_precision,
    ndcg,
    reciprocal_scores,
    unit,
)

RNG = np.random.default_rng(0)
BASE = RNG.standard_normal((30, 5))


def test_the_first_round_is_the_sorted_cosine():
    places, scores = first_round(BASE[:3], BASE, 7)
    cosines = unit(BASE[:3]) @ unit(BASE).T
    np.testing.assert_array_equal(places, np.argsort(-cosines, axis=1)[:, :7])
    np.testing.assert_allclose(scores, -np.sort(-cosines, axis=1)[:, :7])
    own = np.arange(3)
    without, _ = first_round(BASE[:3], BASE, 6, leave_out=own)
    np.testing.assert_array_equal(without, places[:, 1:])
    with pytest.raises(ValueError, match="k is 31; expected 1 to 30"):
        first_round(BASE, BASE, 31)


def test_expansion_by_hand():
    found = expand_query(BASE[:1], BASE, top=2, alpha=2.0)
    places, scores = first_round(BASE[:1], BASE, 2)
    rows = unit(BASE)
    by_hand = (
        rows[0] + scores[0, 0] ** 2 * rows[places[0, 0]] + scores[0, 1] ** 2 * rows[places[0, 1]]
    )
    np.testing.assert_allclose(found[0], by_hand / np.linalg.norm(by_hand))


def test_reciprocal_neighbours_are_permuted_with_the_list():
    query, listed = unit(BASE)[0], unit(BASE)[1:]
    order = RNG.permutation(len(listed))
    scores = reciprocal_scores(query, listed, k1=6, k2=3)
    np.testing.assert_allclose(reciprocal_scores(query, listed[order], k1=6, k2=3), scores[order])
    cosine = reciprocal_scores(query, listed, share=1.0)
    np.testing.assert_allclose(cosine, listed @ query)


def test_precision_and_gain_are_those_of_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    relevant = RNG.random((20, 12)) < 0.4
    relevant[:, 0] |= ~relevant.any(1)
    scores = -np.arange(12.0)
    expected = [metrics.average_precision_score(row, scores) for row in relevant]
    assert mean_average_precision(relevant) == pytest.approx(np.mean(expected))
    gains = RNG.integers(4, size=(20, 12))
    theirs = metrics.ndcg_score(gains, np.tile(scores, (20, 1)), k=5)
    assert ndcg(gains, 5) == pytest.approx(theirs)
    assert average_precision(np.array([True, False, True]), 4) == pytest.approx((1 + 2 / 3) / 4)
    with pytest.raises(ValueError, match="no query has anything relevant"):
        mean_average_precision(np.zeros((2, 3), dtype=bool))
