"""Time as a feature map: kernels of t - t', in float64, with the frequencies of the data."""

import math

import pytest
import torch

import primal_attention as pa
from primal_attention.theory.time import TimeScales, waves

F64 = torch.float64
TIMES = torch.tensor([0.0, 0.3, 1.7, 4.0, 4.1, 9.5], dtype=F64)
MAPS = {
    "bochner": lambda **kind: pa.BochnerTime(7, shortest=0.2, longest=30.0, **kind),
    "mercer": lambda **kind: pa.MercerTime([1.0, 5.0, 40.0], 4, **kind),
}


def both(test):
    return pytest.mark.parametrize("make", MAPS.values(), ids=MAPS)(test)


@both
def test_the_gram_matrix_is_a_kernel_of_differences(make):
    phi = make(dtype=F64)
    torch.nn.init.normal_(list(phi.parameters())[-1])  # any parameters
    features = phi(TIMES).detach()
    assert features.shape == (6, phi.features)
    gram = features @ features.mT
    kernel = phi.kernel(TIMES[:, None] - TIMES).detach()
    torch.testing.assert_close(gram, kernel, rtol=0, atol=1e-12)
    assert float(torch.linalg.eigvalsh(gram).min()) > -1e-12
    torch.testing.assert_close(gram.diagonal(), torch.ones(6, dtype=F64))


@both
def test_unix_seconds_do_not_lose_their_fractions(make):
    phi = make(dtype=torch.float32)
    near, far = phi(TIMES), phi(TIMES + 1.7e9)
    torch.testing.assert_close(near @ near.mT, far @ far.mT, rtol=0, atol=2e-6)


@both
def test_every_parameter_has_a_gradient(make):
    phi = make(dtype=F64)
    torch.autograd.gradcheck(lambda *_: phi(TIMES), tuple(phi.parameters()))


def test_sine_and_cosine_share_their_frequencies():
    w = torch.tensor([0.5, 3.0], dtype=F64)
    cosines, sines = waves(TIMES, w)
    torch.testing.assert_close(cosines.square() + sines.square(), torch.ones(6, 2, dtype=F64))
    torch.testing.assert_close(cosines, (TIMES[:, None] * w).cos())


def test_frequencies_come_from_the_gaps_of_the_training_set():
    scales = TimeScales.of([[10.0, 11.0, 13.0], [0.0, 0.0, 100.0], [5.0]])
    assert scales.longest == 100.0
    assert 1.0 <= scales.shortest < 2.0  # the 5 % quantile of 1, 2, 100: a gap of zero is none
    found = pa.BochnerTime.from_times(3, [[10.0, 11.0, 13.0], [0.0, 0.0, 100.0]], dtype=F64)
    ends = found.frequencies[[0, -1]].detach()
    torch.testing.assert_close(1 / ends, torch.tensor([scales.shortest, 100.0], dtype=F64))
    ratios = found.frequencies[1:] / found.frequencies[:-1]
    torch.testing.assert_close(ratios[0], ratios[1])
    periods = pa.MercerTime.from_times(2, [[0.0, 2.0, 4.0]], 3, dtype=F64).log_periods.exp()
    torch.testing.assert_close(periods.detach(), 2 * math.pi * torch.tensor([2.0, 4.0], dtype=F64))


def test_what_makes_no_time():
    with pytest.raises(ValueError, match="all times are equal"):
        TimeScales.of([[3.0, 3.0], [1.0]])
    with pytest.raises(ValueError, match="shortest <= longest"):
        pa.BochnerTime(4, shortest=2.0, longest=1.0)
    with pytest.raises(ValueError, match="positive numbers"):
        pa.MercerTime([1.0, -1.0])
    with pytest.raises(ValueError, match="degree is 0"):
        pa.MercerTime([1.0], 0)
