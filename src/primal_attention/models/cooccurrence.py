"""Embeddings that start from the statistics of their corpus: the KSVD of the kernel of what occurs
near what (Levy & Goldberg, 2014; as an attention kernel: Mehta, 2025)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..attention.base import Attention
from ..theory.solver import KSVD, ksvd
from ..theory.sparse import SparseKernel

TOLERANCE = 1e-4  # of the directions, against the largest singular value
SMALLEST_PART = 1e-6  # of a row beside the mean, against the longest row
SMOOTHING = 0.75  # power of the counts of contexts: rare ones weigh less


@torch.no_grad()
def cooccurrence_(
    embedding: nn.Embedding,
    sequences: Iterable[Any],
    window: int = 5,
    *,
    directed: bool = False,
    attention: Attention | None = None,
) -> KSVD:
    """Start an embedding at the leading directions of the co-occurrence kernel of a corpus.

    `sequences` hold numbers of tokens; pairs at distance k <= window count 1/k, see `ppmi`. With
    the KSVD `S ~ U Sigma V^T`, token a starts at `U_a Sigma^{1/2}`, without the mean over all
    tokens, and with rows of equal length: a random start has neither a direction that all tokens
    share nor longer rows for some. The rows have the deviation that the embedding has; columns
    beyond the rank of S stay as they are.

    `directed` tells "b follows a" from "a follows b": the first half of a row is `U_a Sigma^{1/2}`,
    the second `V_a Sigma^{1/2}`. An `attention` then has queries that read the first half and keys
    that read the second, so that `<q_a, k_b>` is proportional to S_ab; hence these rows keep their
    mean and lengths. Where it was measured, the symmetric start, the default, was the better one.
    """
    vocabulary, width = embedding.weight.shape
    kernel = ppmi(sequences, vocabulary, window, symmetric=not directed)
    half = width // 2 if directed else width
    if half < 1:
        raise ValueError(f"the embedding has width {width}; expected at least 2")
    found = ksvd(kernel, min(half, kernel.max_rank), tol=TOLERANCE)
    rank = found.rank
    root = found.sigma[:rank].sqrt()
    if directed:
        sides = [found.left[:, :rank] * root, found.right[:, :rank] * root]
    else:
        sides = [_equal_rows(found.left[:, :rank] * root)]
    deviation = float(embedding.weight.std())
    size = float(torch.cat(sides).square().mean().sqrt())
    scale = deviation / size if size > 0 else 1.0
    for number, side in enumerate(sides):
        embedding.weight[:, number * half : number * half + rank] = (side * scale).to(
            embedding.weight
        )
    if attention is not None:
        if not directed:
            raise ValueError("an attention was given with directed=False; expected directed=True")
        _read_halves(attention, half)
    return found


def ppmi(
    sequences: Iterable[Any], vocabulary: int, window: int = 5, *, symmetric: bool = True
) -> SparseKernel:
    """Positive pointwise mutual information of tokens, from counts `C_ab = sum 1/k` over pairs at
    distance k <= window, b after a; symmetric: C + C^T.

        S_ab = max(0, log(C_ab sum_b' C_.b'^{3/4} / (C_a. C_.b^{3/4})))
    """
    if window < 1:
        raise ValueError(f"window is {window}; expected at least 1")
    places, counts = _counts(sequences, vocabulary, window)
    if symmetric:
        turned = places % vocabulary * vocabulary + places // vocabulary
        places, counts = _add(np.concatenate([places, turned]), np.concatenate([counts, counts]))
    if not len(places):
        raise ValueError("no token has a neighbour; expected sequences of at least two tokens")
    a, b = places // vocabulary, places % vocabulary
    rows = np.bincount(a, counts, vocabulary)
    columns = np.bincount(b, counts, vocabulary) ** SMOOTHING
    information = np.log(counts) + math.log(columns.sum()) - np.log(rows[a]) - np.log(columns[b])
    kept = information > 0
    first, second, values = (torch.from_numpy(part[kept]) for part in (a, b, information))
    return SparseKernel(first, second, values, (vocabulary, vocabulary))


def _counts(
    sequences: Iterable[Any], vocabulary: int, window: int
) -> tuple[np.ndarray, np.ndarray]:
    """The pairs that occur, as a * vocabulary + b, and their counts."""
    known = [np.asarray(sequence, dtype=np.int64).ravel() for sequence in sequences]
    tokens = np.concatenate(known) if known else np.empty(0, dtype=np.int64)
    if len(tokens) and not 0 <= tokens.min() <= tokens.max() < vocabulary:
        raise ValueError(
            f"tokens lie between {tokens.min()} and {tokens.max()}; expected 0 to {vocabulary - 1}"
        )
    which = np.repeat(np.arange(len(known)), [len(one) for one in known])
    places, counts = np.empty(0, dtype=np.int64), np.empty(0)
    for k in range(1, min(window, len(tokens) - 1) + 1):
        together = which[:-k] == which[k:]
        pairs = tokens[:-k][together] * vocabulary + tokens[k:][together]
        found, times = np.unique(pairs, return_counts=True)
        places, counts = _add(np.concatenate([places, found]), np.concatenate([counts, times / k]))
    return places, counts


def _add(places: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every place once, with the sum of its counts."""
    unique, which = np.unique(places, return_inverse=True)
    return unique, np.bincount(which, counts, len(unique))


def _equal_rows(rows: Tensor) -> Tensor:
    """Rows without their mean, of length 1. Rows of tokens without neighbours stay zero; one that
    is the mean, as all are where they share their only direction, keeps that direction."""
    known = rows.norm(dim=1, keepdim=True) > 0
    centered = (rows - rows.sum(0) / known.sum()).masked_fill(~known, 0.0)
    least = SMALLEST_PART * rows.norm(dim=1).max()
    alone = centered.norm(dim=1, keepdim=True) <= least
    return F.normalize(torch.where(alone, rows, centered), dim=1)


def _read_halves(attention: Attention, half: int) -> None:
    """W_q takes the first half of a row, W_k the second."""
    width = attention.embed_dim
    if 2 * half != width:
        raise ValueError(f"the attention has width {width}; expected {2 * half}, an even one")
    queries: Tensor = attention.in_proj_weight[:width]
    keys: Tensor = attention.in_proj_weight[width : 2 * width]
    one = torch.eye(half, dtype=queries.dtype, device=queries.device)
    for projection, first in ((queries, 0), (keys, half)):
        projection.zero_()
        projection[:half, first : first + half] = one
