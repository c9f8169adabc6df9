"""Every token gets the row of its own position."""

import math

import pytest
import torch
from torch.testing import assert_close

from primal_attention.models.packing import pack
from primal_attention.models.positions import LearnedPositions, SinusoidalPositions

MASK = torch.tensor([[False, False, True, True], [True, False, False, False]])


@pytest.fixture(params=[LearnedPositions, SinusoidalPositions])
def positions(request):
    torch.manual_seed(0)
    return request.param(6, 5, dtype=torch.float64)


def test_positions_count_tokens(positions, padded):
    x = torch.randn(2, 4, 5, dtype=torch.float64)
    expected = torch.zeros(2, 3, 5, dtype=torch.float64)
    expected[0, :2] = x[0, :2] + positions.table[:2]
    expected[1] = x[1, 1:] + positions.table[:3]
    rows, packing = pack(x, MASK)
    assert_close(packing.unpack(positions(rows, packing)), expected)
    padded()
    rows, packing = pack(x, MASK)
    assert_close(packing.unpack_zeroed(positions(rows, packing))[:, :3], expected)


def test_without_padding(positions):
    x = torch.randn(2, 4, 5, dtype=torch.float64)
    rows, packing = pack(x, None)
    assert_close(positions(rows, packing), x + positions.table[:4])


def test_gradient_of_the_table(padded):
    positions = LearnedPositions(6, 5, dtype=torch.float64)
    g = torch.randn(2, 3, 5, dtype=torch.float64)
    g[0, 2] = 0  # padding
    for _ in range(2):
        rows, packing = pack(torch.zeros(2, 4, 5, dtype=torch.float64), MASK)
        out = packing.unpack_zeroed(positions(rows, packing))[:, :3]
        (grad,) = torch.autograd.grad(out, positions.table, g)
        assert_close(grad[:3], g.sum(0))
        assert not grad[3:].any()
        padded()


def test_learned_start():
    table = LearnedPositions(100, 64).table
    assert isinstance(table, torch.nn.Parameter)
    assert 0.019 < table.abs().max() <= 0.02


@pytest.mark.parametrize("width", [6, 7])
def test_sinusoids(width):
    table = SinusoidalPositions(30, width, dtype=torch.float64).table
    for n in (0, 1, 29):
        for c in range(width):
            angle = n / 10000 ** (2 * (c // 2) / width)
            expected = math.cos(angle) if c % 2 else math.sin(angle)
            assert table[n, c].item() == pytest.approx(expected, abs=1e-12)


def test_sinusoids_are_no_state():
    positions = SinusoidalPositions(30, 6)
    assert not positions.state_dict()
    assert not list(positions.parameters())
    assert positions.table.dtype == torch.float32
