"""Tokens of a padded batch, taken out and put back."""

import pytest
import torch
from torch.testing import assert_close

from primal_attention.models.packing import pack


@pytest.fixture
def mask():
    """Padding at the end, at the front, in the middle, nowhere, everywhere."""
    rows = ["....##", "##....", ".#.#..", "......", "######"]
    return torch.tensor([[place == "#" for place in row] for row in rows])[:, :]


@pytest.fixture
def x():
    return torch.arange(1.0, 1 + 5 * 6 * 2, dtype=torch.float64).view(5, 6, 2)


def by_hand(x, mask):
    """Every sequence at the front of its row, zeros behind it."""
    out = torch.zeros_like(x)
    for row, sequence, ignore in zip(out, x, mask, strict=True):
        kept = sequence[~ignore]
        row[: len(kept)] = kept
    return out


def test_rows_are_the_tokens_in_order(x, mask):
    rows, packing = pack(x, mask)
    assert torch.equal(rows, x[~mask])
    assert (packing.batch, packing.length) == (5, 6)
    assert torch.equal(packing.pack(packing.unpack(rows)), rows)


def test_sequences_begin_at_the_front(x, mask):
    rows, packing = pack(x, mask)
    assert torch.equal(packing.unpack(rows), by_hand(x, mask))
    assert torch.equal(packing.padding.sum(-1), mask.sum(-1))
    assert torch.equal(packing.padding.sort(-1)[0], packing.padding)


def test_the_padded_form_agrees(x, mask, padded):
    padded()
    rows, packing = pack(x.masked_fill(mask.unsqueeze(-1), torch.nan), mask)
    assert packing.places is None
    assert torch.equal(rows, by_hand(x, mask))
    assert torch.equal(packing.unpack_zeroed(rows + 1), by_hand(x + 1, mask))


def test_tokens_without_channels(mask, padded):
    tokens = torch.arange(30).view(5, 6)
    rows, _ = pack(tokens, mask)
    assert torch.equal(rows, tokens[~mask])
    padded()
    rows, _ = pack(tokens, mask)
    assert torch.equal(rows, by_hand(tokens, mask))


def test_columns_of_padding_are_cut_off(x):
    mask = torch.arange(6) >= torch.tensor([[3], [1], [2], [3], [0]])
    rows, packing = pack(x, mask)
    assert packing.length == 3
    assert packing.unpack(rows).shape == (5, 3, 2)


@pytest.mark.parametrize("mask", [None, torch.zeros(5, 6, dtype=torch.bool)], ids=["none", "empty"])
def test_without_padding_nothing_is_copied(x, mask):
    rows, packing = pack(x, mask)
    assert rows is x
    assert packing.padding is None
    assert packing.unpack(x) is x
    assert packing.pack(x) is x
    assert packing.unpack_zeroed(x) is x


def test_nothing_but_padding(x):
    rows, packing = pack(x, torch.ones(5, 6, dtype=torch.bool))
    assert rows.shape == (0, 2)
    assert torch.equal(packing.unpack(rows), torch.zeros(5, 1, 2, dtype=x.dtype))


def test_an_empty_batch(x, mask):
    rows, packing = pack(x[:0], mask[:0])
    assert rows.shape == (0, 6, 2)
    assert packing.batch == 0


def test_derivatives(x, mask):
    rows, packing = pack(x, mask)
    rows = (rows / 60).requires_grad_()
    sequences = packing.unpack(rows.detach()).requires_grad_()
    for function, argument in ((packing.unpack, rows), (packing.pack, sequences)):

        def squares(t, function=function):
            return function(t).square()

        assert torch.autograd.gradcheck(function, argument)
        assert torch.autograd.gradgradcheck(squares, argument)


def test_derivative_of_the_inputs(x, mask):
    leaf = x.clone().requires_grad_()
    rows, _ = pack(leaf, mask)
    rows.square().sum().backward()
    assert_close(leaf.grad, (2 * x).masked_fill(mask.unsqueeze(-1), 0.0))
