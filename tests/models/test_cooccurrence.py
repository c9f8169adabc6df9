"""Embeddings that start at the co-occurrence of their corpus."""

import math

import numpy as np
import pytest
import torch

import primal_attention as pa
from primal_attention.models.cooccurrence import ppmi
from primal_attention.models.embedding import TokenEmbedding

RNG = np.random.default_rng(0)
CORPUS = [RNG.integers(12, size=n) for n in (60, 1, 45)]


def by_hand(sequences, vocabulary, window, symmetric):
    counts = np.zeros((vocabulary, vocabulary))
    for tokens in sequences:
        for i in range(len(tokens)):
            for k in range(1, window + 1):
                if i + k < len(tokens):
                    counts[tokens[i], tokens[i + k]] += 1 / k
    counts = counts + counts.T if symmetric else counts
    rows, columns = counts.sum(1), counts.sum(0) ** 0.75
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.log(counts * columns.sum() / np.outer(rows, columns))
    return np.maximum(np.nan_to_num(found, nan=0.0, neginf=0.0), 0.0)


@pytest.mark.parametrize("symmetric", [True, False])
def test_information_is_that_of_the_definition(symmetric):
    found = ppmi(CORPUS, 14, 3, symmetric=symmetric)  # two tokens never occur
    np.testing.assert_allclose(found.dense().numpy(), by_hand(CORPUS, 14, 3, symmetric), atol=1e-12)


def test_a_directed_start_makes_attention_begin_at_the_kernel():
    torch.manual_seed(0)
    embedding = TokenEmbedding(12, 8, dtype=torch.float64)
    attention = pa.make_attention("softmax", 8, 2, bias=False, dtype=torch.float64)
    before = float(embedding.weight.detach().std())
    found = pa.cooccurrence_(embedding, CORPUS, 3, directed=True, attention=attention)
    assert found.rank == 4
    nearest = found.left * found.sigma @ found.right.mT  # the best kernel of rank 4
    q, k = attention.in_proj_weight[:16].detach().mT.chunk(2, 1)
    rows = embedding.weight.detach()
    logits = (rows @ q) @ (rows @ k).mT
    scale = float((logits * nearest).sum() / nearest.square().sum())
    torch.testing.assert_close(logits, scale * nearest, rtol=0, atol=1e-6)
    assert float(rows.square().mean().sqrt()) == pytest.approx(before, rel=1e-6)


def test_the_usual_start_is_symmetric_and_keeps_what_it_does_not_need():
    torch.manual_seed(0)
    embedding = TokenEmbedding(12, 20, dtype=torch.float64)
    before = embedding.weight.detach().clone()
    found = pa.cooccurrence_(embedding, CORPUS)
    rank = found.rank
    assert rank <= 12
    torch.testing.assert_close(embedding.weight[:, rank:].detach(), before[:, rank:])
    rows = embedding.weight[:, :rank].detach()
    kernel = ppmi(CORPUS, 12).dense()
    # U Sigma U^T is the root of S S^T (contexts are smoothed, so S is not symmetric)
    values, vectors = torch.linalg.eigh(kernel @ kernel.mT)
    absolute = vectors * values.clamp(min=0).sqrt() @ vectors.mT
    absolute = absolute - absolute.mean(0)
    absolute = absolute - absolute.mean(1, keepdim=True)
    length = absolute.diagonal().sqrt()
    made = rows @ rows.mT / rows.square().sum(1).mean()
    expected = absolute / length / length.unsqueeze(1)
    torch.testing.assert_close(made, expected, rtol=0, atol=1e-6)
    assert float(rows.square().mean().sqrt()) == pytest.approx(float(before.std()), rel=1e-6)


def test_two_topics_are_told_apart():
    topics = [RNG.integers(6, size=400) + 6 * (i % 2) for i in range(6)]
    embedding = TokenEmbedding(12, 4, dtype=torch.float64)
    pa.cooccurrence_(embedding, topics)
    rows = torch.nn.functional.normalize(embedding.weight.detach(), dim=1)
    near = rows @ rows.mT  # without their mean, two topics are opposite
    assert float(near[:6, :6].mean()) > 0.7
    assert float(near[:6, 6:].mean()) < -0.7


def test_tokens_without_neighbours_and_tokens_that_are_all_alike():
    embedding = TokenEmbedding(14, 4, dtype=torch.float64)
    pa.cooccurrence_(embedding, [[0, 1] * 20 + [2, 3] * 20])
    rows = embedding.weight.detach()
    length = rows.norm(dim=1)
    assert rows.isfinite().all()
    assert (length[:4] > 0).all()
    torch.testing.assert_close(length[:4], length[:1].expand(4))
    twins = TokenEmbedding(2, 4, dtype=torch.float64)
    found = pa.cooccurrence_(twins, [[0, 1, 0, 1, 0]])
    assert twins.weight.isfinite().all()
    assert (twins.weight[:, : found.rank] != 0).any(1).all()


def test_what_is_no_corpus():
    embedding = TokenEmbedding(12, 4)
    with pytest.raises(ValueError, match="no token has a neighbour"):
        pa.cooccurrence_(embedding, [[1], [2]])
    with pytest.raises(ValueError, match="expected 0 to 11"):
        pa.cooccurrence_(embedding, [[1, 12]])
    with pytest.raises(ValueError, match="window is 0"):
        pa.cooccurrence_(embedding, CORPUS, 0)
    with pytest.raises(ValueError, match="expected directed=True"):
        pa.cooccurrence_(embedding, CORPUS, attention=pa.make_attention("softmax", 4, 1))
    assert math.isfinite(float(embedding.weight.detach().sum()))
