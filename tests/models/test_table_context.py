"""What is kept of a context, as tensors and back."""

import pytest
from torch.testing import assert_close

from primal_attention.models.table_context import from_tensors, sums_of, to_tensors

from .test_table import draw, make


@pytest.mark.parametrize("attention", ["primal", "performer", "softmax"])
def test_stored_summaries_answer_as_before(attention):
    net = make(attention=attention)
    numbers, codes, _ = draw(5)
    kept = net.summarise(*draw(12))
    again = from_tensors(net, to_tensors(kept))
    assert_close(
        net.answer(numbers, codes, again), net.answer(numbers, codes, kept), rtol=0, atol=0
    )
    assert [one.nbytes for one in again] == [one.nbytes for one in kept]


def test_sums_are_asked_for():
    kept = make(attention="softmax").summarise(*draw(4))
    assert sums_of(kept[0]) is kept[0]  # of the readout
    with pytest.raises(ValueError, match="the context is kept row by row"):
        sums_of(kept[1])


def test_a_part_that_is_lost_is_an_error():
    net = make()
    stored = to_tensors(net.summarise(*draw(4)))
    del stored["1.count"]
    with pytest.raises(KeyError):
        from_tensors(net, stored)
