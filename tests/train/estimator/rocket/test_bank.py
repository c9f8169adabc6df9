"""The bank: its kernels, and their responses against the plain definition."""

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn")

from primal_attention.train.estimator.rocket.bank import (
    KERNELS,
    LENGTH,
    Bank,
    Workspace,
    difference,
    draw_bank,
    levels,
    responses,
)


def plain_responses(layer, x, stride):
    """z (G, K, n) of one case x (C, T), by the definition, in float64."""
    x, (channels, length) = x.double().numpy(), x.shape
    z = np.zeros((layer.groups, KERNELS, -(-length // stride)))
    for g in range(layer.groups):
        if channels == 1:
            y = x[0]
        else:
            y = sum(
                gain * x[c] for gain, c in zip(layer.gains[g].tolist(), layer.picks[g], strict=True)
            )
        kernels = layer.kernels[g].double().numpy()  # (K, LENGTH)
        for i, t in enumerate(range(0, length, stride)):
            for j in range(LENGTH):
                place = t + (j - LENGTH // 2) * layer.dilation
                if 0 <= place < length:
                    z[g, :, i] += kernels[:, j] * y[place]
    return z


@pytest.mark.parametrize("channels", [1, 2, 5])
@pytest.mark.parametrize(("length", "stride"), [(40, 1), (41, 3), (3, 1), (1, 1)])
def test_responses_are_those_of_the_definition(channels, length, stride):
    bank = draw_bank(0, channels, 40, groups=3)
    x = torch.randn(2, channels, length, generator=torch.Generator().manual_seed(0))
    work = Workspace()
    for layer in bank.layers:
        z = responses(layer, x, stride, work)
        for case, found in zip(x, z, strict=True):
            expected = plain_responses(layer, case, stride)
            np.testing.assert_allclose(found.numpy(), expected, atol=2e-6)


def test_a_constant_stretch_gives_no_response():
    """The kernels' means are 0 up to rounding, which must not decide who wins."""
    (layer, *_) = draw_bank(0, 1, 9, groups=4).layers
    z = responses(layer, torch.full((1, 1, 30), 2.7), 1, Workspace())
    assert (z[..., 4:-4] == 0).all()
    assert (z[..., 0] != 0).all()


def test_some_groups_alone_are_the_same():
    layer = draw_bank(0, 4, 30, groups=5).layers[3]
    x = torch.randn(2, 4, 30, generator=torch.Generator().manual_seed(0))
    whole = responses(layer, x, 1, Workspace())
    part = responses(layer.part(slice(1, 3)), x, 1, Workspace())
    torch.testing.assert_close(part, whole[:, 1:3])


@pytest.mark.parametrize(
    ("longest", "dilations"),
    [(1, [1]), (9, [1]), (16, [1]), (17, [1, 2]), (100, [1, 2, 4, 8]), (152, [1, 2, 4, 8, 16])],
)
def test_dilations_reach_over_the_series(longest, dilations):
    layers = draw_bank(0, 1, longest, groups=1).layers
    assert [layer.dilation for layer in layers if not layer.difference] == dilations
    assert [layer.dilation for layer in layers if layer.difference] == dilations


def test_kernels_have_mean_zero_and_norm_one():
    for layer in draw_bank(0, 3, 100, groups=4).layers:
        assert layer.kernels.mean(-1).abs().max() < 1e-7
        torch.testing.assert_close(layer.kernels.abs().sum(-1), torch.ones(4, KERNELS))


@pytest.mark.parametrize("channels", [1, 2, 3, 20, 1000])
def test_channels_of_a_group_are_different_ones(channels):
    for layer in draw_bank(0, channels, 100, groups=32).layers:
        assert layer.picks.max() < channels
        assert all(len(set(row.tolist())) == len(row) for row in layer.picks)
        used = (layer.gains != 0).sum(1)
        assert used.min() >= 1
        assert used.max() == min(channels, 8)


def test_the_seed_decides():
    first, second, other = (draw_bank(seed, 3, 50, groups=2).tensors() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["kernels"], other["kernels"])


def test_tensors_and_back():
    bank = draw_bank(0, 3, 50, groups=2)
    again = Bank.from_tensors(3, bank.tensors())
    assert all(torch.equal(t, again.tensors()[name]) for name, t in bank.tensors().items())
    assert [layer.difference for layer in again.layers] == [False, True] * 3


def test_quantile_levels_are_spread_evenly():
    found = levels(4, 8)
    assert found.min() >= 0
    assert found.max() < 1
    share, _ = np.histogram(found.flatten(), bins=10, range=(0, 1))
    assert share.min() >= 0.8 * share.mean()
    torch.testing.assert_close(
        (found[..., 1] - found[..., 0]).abs(), torch.full((4, 8, 8), 0.5).double()
    )


def test_the_difference_begins_with_zero():
    x = torch.tensor([[1.0, 3.0, 2.0]])
    assert difference(x).tolist() == [[0.0, 2.0, -1.0]]
    assert difference(x[:, :1]).tolist() == [[0.0]]
