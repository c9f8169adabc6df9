"""Every part of the features against its plain definition, alone and in a padded chunk."""

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn")

from primal_attention.train.estimator.rocket.bank import KERNELS, Workspace, draw_bank, responses
from primal_attention.train.estimator.rocket.pooling import COSINES, PARTS, Times, pool

ALL = tuple(PARTS)[:-1]  # those of the kernels


def layer_with_biases(dilation=1):
    bank = draw_bank(0, 2, 17, groups=3)
    generator = torch.Generator().manual_seed(1)
    biases = 0.2 * torch.randn(len(bank.layers), 3, KERNELS, 2, generator=generator)
    return bank.with_biases(biases).layers[dilation]


def case(length, seed=0):
    return torch.randn(2, length, generator=torch.Generator().manual_seed(seed))


def plain_parts(z, layer, length, stride):
    """The definitions of the module's docstring, for one case z (G, K, n), in float64."""
    z, biases = z.double().numpy(), layer.biases.double().numpy()
    n = z.shape[2]
    u = (np.arange(n) * stride + 0.5) / length
    cosines = [np.cos(np.pi * j * u) for j in range(1, COSINES + 1)]
    found = {name: [] for name in ALL}
    for group, b, v in zip(z, biases, layer.mixing.double().numpy(), strict=True):
        won, lost = group == group.max(0), group == group.min(0)
        for k in range(KERNELS):
            above, value = group[k] > b[k, 0], np.where(won[k], group[k], 0)
            found["max_counts"].append(np.sqrt(max(value.mean() * length, 0)))
            found["min_counts"].append(np.sqrt(lost[k].mean() * length))
            found["proportions"] += [above.mean(), (group[k] > b[k, 1]).mean()]
            found["excess"].append(np.maximum(group[k] - b[k, 0], 0).mean())
            found["maxima"].append(group[k].max())
            found["winner_cosines"] += [(value * c).mean() for c in cosines]
            found["positive_cosines"] += [(above * c).mean() for c in cosines]
        tied = (
            sum(np.outer(x / max(np.linalg.norm(x), 1e-6), v @ x) for x in group.T) / n
        )  # (K, MIXED)
        found["tied"] += (np.sign(tied) * np.sqrt(np.abs(tied))).flatten().tolist()
    return {name: np.array(values) for name, values in found.items()}


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("dilation", [0, 3])
def test_parts_are_those_of_the_definition(dilation, stride):
    layer, lengths, work = layer_with_biases(dilation), [17, 12, 5, 1], Workspace()
    x = torch.zeros(4, 2, 17)
    for i, length in enumerate(lengths):
        x[i, :, :length] = case(length, i)
    times = Times(torch.tensor(lengths), stride)
    found = dict(pool(responses(layer, x, stride, work), layer, times, ALL, work))
    assert set(found) == set(ALL)
    for i, length in enumerate(lengths):
        alone = responses(layer, case(length, i)[None], stride, Workspace())[0]
        for name, expected in plain_parts(alone, layer, length, stride).items():
            np.testing.assert_allclose(
                found[name][i].numpy(), expected, atol=2e-3 if name == "tied" else 1e-5
            )


@pytest.mark.parametrize("part", ALL)
def test_a_part_alone_is_the_same(part):
    layer, times, work = layer_with_biases(), Times(torch.tensor([17]), 1), Workspace()
    z = responses(layer, case(17)[None], 1, work)
    whole = {name: values.clone() for name, values in pool(z, layer, times, ALL, work)}
    alone = {name: values.clone() for name, values in pool(z, layer, times, (part,), work)}
    assert list(alone) == [part]
    torch.testing.assert_close(alone[part], whole[part])
    assert alone[part].shape == (1, 3 * KERNELS * PARTS[part])


def test_silence_has_finite_features():
    layer, times, work = layer_with_biases(), Times(torch.tensor([17]), 1), Workspace()
    z = responses(layer, torch.zeros(1, 2, 17), 1, work)
    found = dict(pool(z, layer, times, ALL, work))
    assert all(values.isfinite().all() for values in found.values())
    assert (found["tied"] == 0).all()
    assert (found["max_counts"] == 0).all()
