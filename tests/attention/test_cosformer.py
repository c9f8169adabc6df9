"""cosFormer: what its fixed length means; its matrix is tested in test_factored.py."""

import pytest
import torch
from torch.testing import assert_close

from primal_attention.attention import CosformerAttention


def make(**options):
    torch.manual_seed(0)
    return CosformerAttention(8, 2, dtype=torch.float64, **options)


def draw(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_a_causal_layer_needs_a_length():
    with pytest.raises(ValueError, match=r"max_length is None with causal=True; expected the len"):
        make(causal=True)


@pytest.mark.parametrize("wrong", [0, -3, 2.5, True])
def test_lengths_that_are_none(wrong):
    with pytest.raises(ValueError, match=f"max_length is {wrong}; expected an integer"):
        make(max_length=wrong)


def test_without_a_length_it_is_that_of_the_sequence():
    x = draw(2, 6, 8)
    assert_close(make()(x)[0], make(max_length=6)(x)[0])
    assert not torch.allclose(make()(x)[0], make(max_length=7)(x)[0])


@pytest.mark.parametrize("causal", [False, True])
def test_longer_sequences_are_refused(causal):
    layer, x = make(max_length=6, causal=causal), draw(2, 7, 8)
    with pytest.raises(ValueError, match=r"a sequence has 7 valid positions; expected at most max"):
        layer(x)
    ignore = torch.zeros(2, 7, dtype=torch.bool)
    ignore[0, 3] = ignore[1, 0] = True
    assert layer(x, key_padding_mask=ignore)[0].isfinite().all()  # only valid positions count
    assert layer(x[:, :6])[0].isfinite().all()


def test_longer_streams_are_refused():
    layer, x = make(max_length=3, causal=True), draw(2, 4, 8)
    ignore = torch.tensor([[False, True], [False, False]])
    _, state = layer.prefill(x[:, :2], key_padding_mask=ignore)
    _, state = layer.step(x[:, 2], state)
    assert state.seen.tolist() == [2, 3]
    with pytest.raises(ValueError, match="a sequence has 4 valid positions"):
        layer.step(x[:, 3], state)


def test_a_longer_context_is_refused():
    with pytest.raises(ValueError, match="a sequence has 5 valid positions"):
        make(max_length=4)(draw(1, 3, 8), draw(1, 5, 8))


def test_queries_that_meet_nothing_give_zero_rows():
    layer, x = make(), draw(2, 5, 8).requires_grad_()
    with torch.no_grad():
        layer.in_proj_weight[:8] = 0
        layer.in_proj_bias[:8] = -1  # all queries are negative
    out, weights = layer(x, need_weights=True)
    assert (weights == 0).all()
    out.sum().backward()
    assert all(p.grad.isfinite().all() for p in (x, *layer.parameters()))


def test_late_positions_are_told_apart_in_bfloat16():
    """Angles are taken in float32: as bfloat16, positions 300 and 301 would be one."""
    layer = make(max_length=4096).to(torch.bfloat16)
    waves = layer._waves(torch.tensor([[301, 302]]), torch.tensor([[400]]), torch.float32)
    assert (waves[:, 0] != waves[:, 1]).all()


def test_repr_names_the_length():
    assert "max_length=9" in repr(make(max_length=9))
