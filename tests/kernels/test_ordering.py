"""Valid positions first, and back."""

import torch

from primal_attention.kernels.ordering import permute, positions, valid_first

IGNORE = torch.tensor([[1, 0, 0, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]], dtype=torch.bool)


def test_valid_positions_come_first_in_their_order():
    order, place = valid_first(IGNORE)
    assert order.tolist() == [[1, 2, 4, 0, 3], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4]]
    assert place[0].tolist() == [3, 0, 1, 4, 2]


def test_there_and_back():
    order, place = valid_first(IGNORE)
    for shape in ((3, 5, 2), (3, 4, 5, 2)):
        rows = torch.randn(shape)
        moved = permute(rows, order)
        assert torch.equal(moved[0, ..., 2, :], rows[0, ..., 4, :])
        assert torch.equal(permute(moved, place), rows)


def test_positions_count_the_valid_ones():
    rows = torch.zeros(2, 4, 3)
    assert positions(rows, None).tolist() == [[1, 2, 3, 4]] * 2
    ignore = torch.tensor([[True, False, True, False], [False, False, False, True]])
    assert positions(rows, ignore).tolist() == [[0, 1, 1, 2], [1, 2, 3, 3]]
