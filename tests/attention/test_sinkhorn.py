"""Sinkhorn attention is that of a dense matrix whose rows and columns are scaled in turn."""

import pytest
import torch
from torch.nn import functional as F

import primal_attention as pa


def layer(**options):
    torch.manual_seed(0)
    return pa.SinkhornAttention(12, 3, dtype=torch.float64, **options)


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def dense(attention, x, y, hidden, ignore, iterations):
    """By the definition, on matrices; NaN-free rows of those that take part."""
    q = F.linear(x, attention.in_proj_weight[:12], attention.in_proj_bias[:12])
    k, v = F.linear(y, attention.in_proj_weight[12:], attention.in_proj_bias[12:]).chunk(2, -1)
    q, k, v = (one.unflatten(-1, (3, 4)).transpose(1, 2) for one in (q, k, v))
    matrix = (F.elu(q) + 1) @ (F.elu(k) + 1).mT  # (B, h, N, M)
    rows, columns = (~hidden)[:, None, :, None], (~ignore)[:, None, None]
    matrix = matrix * rows * columns
    share = rows.sum(2, keepdim=True) / columns.sum(3, keepdim=True)
    matrix = matrix / matrix.sum(3, keepdim=True).where(rows, 1.0)
    for _ in range(iterations):
        matrix = share * matrix / matrix.sum(2, keepdim=True).where(columns, 1.0)
        matrix = matrix / matrix.sum(3, keepdim=True).where(rows, 1.0)
    heads = (matrix @ v).transpose(1, 2).flatten(2)
    out = F.linear(heads, attention.out_proj.weight, attention.out_proj.bias)
    return matrix, out.masked_fill(hidden[..., None], 0.0)


@pytest.mark.parametrize("iterations", [1, 4])
def test_it_is_dense_sinkhorn(iterations):
    attention, x = layer(iterations=iterations), draw(2, 7, 12)
    ignore = torch.tensor([[False] * 7, [False, True, False, False, False, True, True]])
    matrix, out = dense(attention, x, x, ignore, ignore, iterations)
    found, weights = attention(
        x, key_padding_mask=ignore, need_weights=True, average_attn_weights=False
    )
    torch.testing.assert_close(found, out)
    torch.testing.assert_close(weights, matrix)
    torch.testing.assert_close(attention.factors(x, None, ignore).dense(), matrix)


def test_rows_and_columns_sum_to_one():
    """Of valid positions; those of another sequence of M get N / M each."""
    attention, x, y = layer(iterations=40), draw(2, 9, 12), draw(2, 5, 12, seed=1)
    ignore = torch.tensor([[False] * 9, [True, *[False] * 6, True, True]])
    kernel = attention.factors(x, None, ignore)
    valid = (~ignore)[:, None].expand(-1, 3, -1).double()
    torch.testing.assert_close(kernel.row_sums(), valid)
    torch.testing.assert_close(kernel.column_sums(), valid)
    kernel = attention.factors(x, y)
    torch.testing.assert_close(kernel.row_sums(), torch.ones(2, 3, 9).double())
    torch.testing.assert_close(kernel.column_sums(), torch.full((2, 3, 5), 9 / 5).double())


def test_five_iterations_are_near():
    """The default, on random rows of the scale that layer norms give."""
    attention = layer()
    sums = attention.factors(draw(4, 200, 12)).column_sums()
    assert (sums - 1).abs().max() < 0.01


def test_gradients_reach_through_the_iterations():
    attention, x = layer(iterations=2), draw(1, 4, 12).requires_grad_()
    assert torch.autograd.gradcheck(lambda rows: attention(rows)[0], x)


def test_the_mean_is_kept():
    """Columns that sum to one move mass, and make or lose none."""
    attention, x = layer(iterations=40), draw(1, 6, 12)
    with torch.no_grad():
        attention.out_proj.weight.copy_(torch.eye(12))
        attention.out_proj.bias.zero_()
    values = F.linear(x, attention.in_proj_weight[24:], attention.in_proj_bias[24:])
    torch.testing.assert_close(attention(x)[0].mean(1), values.mean(1))


def test_what_is_refused():
    with pytest.raises(ValueError, match="iterations is 0"):
        layer(iterations=0)
