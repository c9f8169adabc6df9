"""Landmarks against numpy's array_split of the valid positions."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from primal_attention.attention.landmarks import Landmarks

BATCH, HEADS, WIDTH = 3, 2, 5


def rows_of(length: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(BATCH, HEADS, length, WIDTH, generator=generator, dtype=torch.float64)


def expected(rows: torch.Tensor, count: int) -> torch.Tensor:
    """Of one sequence (h, n, p) without padding."""
    count = min(count, rows.shape[1])
    runs = np.array_split(np.arange(rows.shape[1]), count)
    return torch.stack([rows[:, run].mean(1) for run in runs], 1)


@pytest.mark.parametrize("length", [1, 2, 7, 12, 13])
@pytest.mark.parametrize("count", [1, 3, 4, 12, 20])
def test_means_of_equal_runs(length, count):
    rows = rows_of(length)
    landmarks = Landmarks(count, length, None)
    truth = torch.stack([expected(sequence, count) for sequence in rows])
    assert_close(landmarks.means(rows), truth)
    assert landmarks.all_single == (length <= count)
    nothing = torch.zeros(BATCH, length, dtype=torch.bool)
    masked = Landmarks(count, length, nothing)
    assert_close(masked.means(rows), truth)
    assert not masked.empty.any()
    assert masked.single.eq(length <= count).all()


@pytest.mark.parametrize("count", [1, 3, 4, 6, 20])
def test_only_valid_positions_count(count):
    length = 13
    ignore = torch.rand(BATCH, length, generator=torch.Generator().manual_seed(1)) > 0.4
    ignore[1] = True
    ignore[1, 6] = False  # one valid position
    ignore[2, :] = True  # none
    rows = rows_of(length)
    landmarks = Landmarks(count, length, ignore)
    means = landmarks.means(rows)
    for i in range(2):
        truth = expected(rows[i][:, ~ignore[i]], count)
        filled = truth.shape[1]
        assert_close(means[i, :, :filled], truth)
        assert landmarks.empty[i].tolist() == [False] * filled + [True] * (means.shape[2] - filled)
    assert landmarks.empty[2].all()
    assert (means.masked_select(landmarks.empty[:, None, :, None]) == 0).all()
    assert landmarks.single.tolist() == ((~ignore).sum(-1) <= count).tolist()
