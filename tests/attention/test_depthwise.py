"""Depth-wise convolutions against torch's, moved taps against a gather."""

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from primal_attention.attention.depthwise import DepthWise, interpolate

from .draws import draw

EXACT = {"rtol": 1e-12, "atol": 1e-12}
WIDTH, HEADS = 6, 3


def convolution(*, axes=1, kernel=5, dilation=1, causal=False, reach=None, bias=True):
    torch.manual_seed(0)
    return DepthWise(
        WIDTH, HEADS, axes, kernel=kernel, dilation=dilation, causal=causal, reach=reach,
        bias=bias, dtype=torch.float64,
    )  # fmt: skip


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("kernel", "dilation"), [(1, 1), (5, 1), (7, 3)])
@pytest.mark.parametrize("causal", [False, True])
def test_is_torchs_convolution(kernel, dilation, causal, bias):
    made, u = convolution(kernel=kernel, dilation=dilation, causal=causal, bias=bias), draw(2, 9, 6)
    span = dilation * (kernel - 1)
    margins = (span, 0) if causal else (span // 2, span // 2)
    taps = made.weight.T.unsqueeze(1)
    expected = F.conv1d(F.pad(u.mT, margins), taps, made.bias, dilation=dilation, groups=WIDTH)
    assert_close(made(u), expected.mT, **EXACT)


def test_is_torchs_convolution_on_a_grid():
    made, u = convolution(axes=2, kernel=3, dilation=2), draw(2, 5, 4, WIDTH)
    taps = made.weight.T.unflatten(1, (1, 3, 3))
    expected = F.conv2d(u.permute(0, 3, 1, 2), taps, made.bias, padding=2, dilation=2, groups=WIDTH)
    assert_close(made(u), expected.permute(0, 2, 3, 1), **EXACT)


@pytest.mark.parametrize("shape", [(9,), (4, 5)])
@pytest.mark.parametrize("causal", [False, True])
def test_taps_start_in_their_places_to_the_last_bit(shape, causal):
    if causal and len(shape) == 2:
        pytest.skip("causal convolutions have one axis")
    options = {"axes": len(shape), "kernel": 3, "dilation": 3, "causal": causal}
    still, moving = convolution(**options), convolution(reach=1.5, **options)
    u = draw(2, *shape, WIDTH)
    assert torch.equal(moving(u), still(u))


@pytest.mark.parametrize("shape", [(9,), (4, 5)])
def test_whole_offsets_are_a_gather(shape):
    """All taps of head h are moved by 2 - h steps along the last axis."""
    made = convolution(axes=len(shape), kernel=3, reach=8.0)
    u, moves = draw(2, *shape, WIDTH), torch.tensor([[2.0], [1.0], [0.0]], dtype=torch.float64)
    with torch.no_grad():  # reach tanh(a) is the move
        made.offset_bias.unflatten(1, (-1, len(shape)))[..., -1] = (moves / 8.0).atanh()
    still = convolution(axes=len(shape), kernel=3)
    still.load_state_dict(made.state_dict(), strict=False)
    heads = []
    for head, move in enumerate((2, 1, 0)):
        ahead = F.pad(u, (0, 0, 0, move))[..., move:, :]
        heads.append(still(ahead)[..., 2 * head : 2 * head + 2])
    # at the first place the input that was moved has lost what its first tap sees
    expected = torch.cat(heads, -1)[..., 1:, :]
    assert_close(made(u)[..., 1:, :], expected, **EXACT)


@pytest.mark.parametrize("axes", [1, 2])
def test_the_slope_of_the_interpolation(axes):
    sizes = (4, 5)[-axes:]
    x = draw(2, *sizes, 3, 2).requires_grad_()
    lows = [torch.randint(0, size - 1, (2, 6, 3)) for size in sizes]
    lasts = [torch.tensor(size - 1) for size in sizes]
    parts = [(0.1 + 0.8 * torch.rand(2, 6, 3).double()).requires_grad_() for _ in sizes]
    assert torch.autograd.gradcheck(lambda x, *p: interpolate(x, lows, lasts, p), (x, *parts))


def test_the_slope_of_moved_taps():
    made, u = convolution(kernel=3, dilation=2, reach=1.0), draw(2, 5, WIDTH).requires_grad_()
    for parameter in (made.offset_weight, made.offset_bias):
        torch.nn.init.normal_(parameter, std=0.3)
    assert torch.autograd.gradcheck(lambda u, *_: made(u), (u, *made.parameters()))


@pytest.mark.parametrize("causal", [False, True])
def test_every_tap_can_leave_its_place(causal):
    made, u = convolution(kernel=3, causal=causal, reach=1.0), draw(2, 9, WIDTH)
    made(u).sin().sum().backward()
    assert (made.offset_bias.grad != 0).all()


def test_a_causal_tap_does_not_pass_its_position():
    made, u = convolution(kernel=1, causal=True, reach=2.0), draw(2, 9, WIDTH)
    still = made(u)
    torch.nn.init.uniform_(made.offset_bias, 0.1, 3.0)
    assert_close(made(u), still, **EXACT)


def test_offsets_are_bounded():
    made, u = convolution(kernel=5, dilation=2, reach=1.5), draw(1, 60, WIDTH)
    torch.nn.init.constant_(made.offset_bias, 100.0)
    assert made.before == 4 + 3
    other = u.clone()
    other[:, 30 + 8 :] += 1.0  # the last tap of position 30 is at 34, and moved at 37
    assert torch.equal(made(other)[:, :31], made(u)[:, :31])
    assert not torch.equal(made(other)[:, 31], made(u)[:, 31])


@pytest.mark.parametrize("reach", [None, 0.7])
def test_what_is_remembered_continues(reach):
    made, u = convolution(kernel=3, dilation=2, causal=True, reach=reach), draw(2, 9, WIDTH)
    for name, parameter in made.named_parameters():
        if name.startswith("offset"):
            torch.nn.init.normal_(parameter)
    past = u.new_zeros(2, made.before, WIDTH)
    first = made(u[:, :4], past)
    after = made.remember(u[:, :4], past, None)
    assert_close(torch.cat([first, made(u[:, 4:], after)], 1), made(u), **EXACT)
    assert torch.equal(made.remember(u, past, torch.tensor([4, 4])), after)
