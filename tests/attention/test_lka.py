"""The gated convolution against torch's convolutions written out."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

from primal_attention import LargeKernelState, make_attention

from .draws import draw, holes, randomised

WIDTH, HEADS = 12, 3
EXACT = {"rtol": 1e-9, "atol": 1e-9}


def layer(**options):
    torch.manual_seed(1)
    return randomised(make_attention("lka", WIDTH, HEADS, dtype=torch.float64, **options))


def plain(made, x: Tensor) -> Tensor:
    """One sequence (N, d), or one grid (H, W, d), with torch's convolutions."""
    axes, convolve = (1, F.conv1d) if x.dim() == 2 else (2, F.conv2d)

    def depthwise(part, rows: Tensor, taps: int, step: int) -> Tensor:
        weight = part.weight.T.unflatten(1, (1, *[taps] * axes))
        margin = (step * (taps - 1), 0) if made.causal else (step * (taps // 2),) * 2
        filled = F.pad(rows.movedim(-1, 0), margin * axes)
        found = convolve(filled[None], weight, part.bias, dilation=step, groups=WIDTH)
        return found[0].movedim(0, -1)

    u = F.gelu(x @ made.in_proj_weight.T + (0 if made.in_proj_bias is None else made.in_proj_bias))
    v = depthwise(made.local, u, made.kernel, 1)
    return made.out_proj(u * made.gate(depthwise(made.wide, v, made.large, made.dilation)))


@pytest.mark.parametrize(
    "options",
    [{}, {"causal": True}, {"bias": False}, {"kernel": 3, "large": 5, "dilation": 2}],
    ids=str,
)
def test_against_torchs_convolutions_among_valid_positions(options):
    made, x, ignore = layer(**options), draw(4, 40, WIDTH), holes(40)
    out, none = made(x, key_padding_mask=ignore)
    assert none is None
    for b, hidden in enumerate(ignore):
        assert_close(out[b, ~hidden], plain(made, x[b, ~hidden]), **EXACT)
        assert (out[b, hidden] == 0).all()


def test_a_grid_is_an_image():
    made, x = layer(grid=(5, 8)), draw(2, 40, WIDTH)
    out, _ = made(x)
    for b in range(2):
        assert_close(out[b], plain(made, x[b].unflatten(0, (5, 8))).flatten(0, 1), **EXACT)


def test_an_ignored_cell_is_empty():
    """As if the image ended there: a column of a wider grid that is ignored changes nothing."""
    small, wide = layer(grid=(4, 3)), layer(grid=(4, 5))
    wide.load_state_dict(small.state_dict())
    x = draw(1, 20, WIDTH)
    ignore = (torch.arange(20) % 5 >= 3)[None]
    rows = x.masked_fill(ignore[..., None], torch.nan)
    out, _ = wide(rows, key_padding_mask=ignore)
    assert_close(out[~ignore], small(x[~ignore][None])[0][0], **EXACT)
    assert (out[ignore] == 0).all()


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"grid": (4, 5)}], ids=str)
def test_deformable_starts_as_the_plain_one(options):
    torch.manual_seed(1)
    still = make_attention("lka", WIDTH, HEADS, **options)
    moving = make_attention("lka", WIDTH, HEADS, deformable=True, **options)
    moving.load_state_dict(still.state_dict(), strict=False)
    x = draw(2, 20, WIDTH).float()
    assert torch.equal(moving(x)[0], still(x)[0])


@pytest.mark.parametrize("deformable", [False, True])
def test_shifted_inside_a_sequence_is_shifted(deformable):
    made, x = layer(deformable=deformable), draw(1, 70, WIDTH)
    far = 15  # 11 to each side; 4 more where taps are moved by both convolutions
    out, later = made(x)[0], made(x[:, 3:])[0]
    assert_close(later[:, far : 67 - far], out[:, 3 + far : 70 - far], **EXACT)


def test_it_sees_23_positions():
    made, x = layer(), draw(1, 60, WIDTH).requires_grad_()
    made(x)[0][0, 30].sum().backward()
    assert (x.grad[0] != 0).any(-1).nonzero()[:, 0].tolist() == list(range(19, 42))
    causal = layer(causal=True)
    state = causal.init_state(2)
    assert isinstance(state, LargeKernelState)
    assert (state.local.shape, state.wide.shape) == ((2, 4, WIDTH), (2, 18, WIDTH))


@pytest.mark.parametrize("options", [{}, {"deformable": True, "reach": 2.5}], ids=str)
def test_long_streams_with_holes(options):
    """Beyond what the state holds, in parts, each with ignored positions."""
    made, x, ignore = layer(causal=True, **options), draw(4, 60, WIDTH), holes(60)
    full, _ = made(x, key_padding_mask=ignore)
    state, parts = made.init_state(4), []
    for part in (slice(0, 2), slice(2, 31), slice(31, 60)):
        out, state = made.prefill(x[:, part], ignore[:, part], state)
        parts.append(out)
    assert_close(torch.cat(parts, 1), full, **EXACT)
    with pytest.raises(ValueError, match="the state has batch size 4; expected 2"):
        made.step(x[:2, 0], state)


@pytest.mark.parametrize(
    ("options", "length", "covered"),
    [
        ({"kernel": 1, "large": 1}, 9, 0),
        ({"kernel": 1}, 9, 9),
        ({"kernel": 1}, 5, 4),  # three steps away: 0 and 3, 1 and 4
        ({"kernel": 1}, 3, 0),
        ({"kernel": 1, "causal": True}, 5, 2),
        ({"kernel": 1, "large": 1, "deformable": True}, 5, 5),
        ({"kernel": 1, "grid": (2, 5)}, 10, 8),
        ({"grid": (2, 5)}, 10, 10),
    ],
    ids=str,
)
def test_coverage(options, length, covered):
    made = layer(**options)
    assert made.coverage(length) == covered
    x = draw(1, length, WIDTH).requires_grad_()
    out, found = made(x)[0][0].sum(-1), torch.zeros(length, dtype=torch.bool)
    for i in range(length):
        (slope,) = torch.autograd.grad(out[i], x, retain_graph=True)
        moved = (slope[0] != 0).any(-1)
        found |= moved & (torch.arange(length) != i)
    assert found.sum() <= covered if made.deformable else found.sum() == covered


def test_there_is_no_matrix():
    made, x = layer(), draw(1, 5, WIDTH)
    with pytest.raises(ValueError, match=r"need_weights=True asks for .* a gated convolution and"):
        made(x, need_weights=True)
    with pytest.raises(ValueError, match="factors asks for an attention matrix; lka is a gated"):
        made.factors(x)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": 4}, "kernel is 4; expected an odd number of taps"),
        ({"large": 0}, "large is 0; expected an integer of at least 1"),
        ({"dilation": 1.5}, "dilation is 1.5; expected an integer of at least 1"),
        ({"reach": 0.0}, "reach is 0.0; expected a number above 0"),
        ({"reach": float("nan")}, "reach is nan; expected a number above 0"),
        ({"grid": 8}, r"grid is 8; expected \(rows, columns\) or None"),
        ({"grid": (8, 0)}, "columns is 0; expected an integer of at least 1"),
        ({"grid": (8, 8), "causal": True}, r"grid is \(8, 8\) with causal=True; expected a seq"),
    ],
    ids=str,
)
def test_refusals(options, message):
    with pytest.raises(ValueError, match=message):
        layer(**options)


def test_a_grid_has_one_length():
    with pytest.raises(ValueError, match=r"the length is 39; expected 5 \* 8, as the grid"):
        layer(grid=(5, 8))(draw(1, 39, WIDTH))
