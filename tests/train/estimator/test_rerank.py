"""Re-ranking: an untrained one is the first round, and the methods behind one call."""

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn")

from primal_attention import Reranker

SMALL = {
    "list_size": 12, "anchors": 6, "width": 8, "heads": 2, "feedforward": 8, "steps": 3,
    "random_state": 0,
}  # fmt: skip
RNG = np.random.default_rng(0)
CENTRES = RNG.standard_normal((5, 6))
GROUPS = np.arange(40) % 5
VECTORS = CENTRES[GROUPS] + 0.7 * RNG.standard_normal((40, 6))


@pytest.fixture(scope="module")
def reranker():
    return Reranker(**SMALL).fit(VECTORS, GROUPS)


def test_without_training_it_is_the_first_round():
    still = Reranker(**SMALL | {"lr": 1e-12, "steps": 1}).fit(VECTORS, GROUPS)
    first = still.rank(VECTORS[:4], VECTORS, 10, method="first")
    np.testing.assert_array_equal(still.rank(VECTORS[:4], VECTORS, 10), first)
    assert (first[:, 0] == np.arange(4)).all()


@pytest.mark.parametrize("method", ["attention", "first", "expand", "reciprocal"])
def test_a_ranking_is_the_list_in_another_order(reranker, method):
    first = reranker.rank(VECTORS[:4], VECTORS, 10, method="first")
    places, scores = reranker.rank(VECTORS[:4], VECTORS, 10, method=method, return_scores=True)
    assert (np.sort(places, 1) == np.sort(first, 1)).all()
    assert (np.diff(scores, axis=1) <= 0).all()


def test_queries_do_not_see_each_other(reranker):
    whole = reranker.rank(VECTORS[:4], VECTORS, 10, return_scores=True)
    alone = reranker.rank(VECTORS[2:3], VECTORS, 10, return_scores=True)
    np.testing.assert_array_equal(alone[0][0], whole[0][2])
    np.testing.assert_allclose(alone[1][0], whole[1][2], rtol=1e-12)


def test_in_a_folder(reranker, tmp_path):
    reranker.save(tmp_path / "saved")
    state = torch.get_rng_state()
    again = Reranker.load(tmp_path / "saved")
    assert torch.equal(torch.get_rng_state(), state)  # the global generators are left alone
    before = reranker.rank(VECTORS[:4], VECTORS, 10, return_scores=True)
    np.testing.assert_array_equal(
        again.rank(VECTORS[:4], VECTORS, 10, return_scores=True)[1], before[1]
    )


def test_what_is_refused(reranker):
    with pytest.raises(ValueError, match="method is 'best'"):
        reranker.rank(VECTORS, VECTORS, method="best")
    with pytest.raises(ValueError, match=r"base is \(6,\) of float64; expected numbers"):
        reranker.rank(VECTORS, VECTORS[0])
    with pytest.raises(ValueError, match="queries have 5 columns and base 6; expected as many"):
        reranker.rank(VECTORS[:, :5], VECTORS)
    with pytest.raises(ValueError, match="k is 0; expected an integer of at least 1"):
        reranker.rank(VECTORS, VECTORS, 0)
    with pytest.raises(ValueError, match="queries has a value that is NaN"):
        reranker.rank(np.full((1, 6), np.nan), VECTORS)
