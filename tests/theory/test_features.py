import math

import pytest
import torch
from torch.testing import assert_close

from primal_attention.theory import Cosine, FeatureMap, PositiveRandomFeatures, make_feature_map

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def test_cosine_is_the_cosine_kernel(randn):
    q, k = randn(3, 4, 6), randn(3, 5, 6)
    phi = Cosine(6)
    expected = torch.cosine_similarity(q.unsqueeze(-2), k.unsqueeze(-3), dim=-1)
    assert_close(phi(q) @ phi(k).mT, expected, rtol=1e-12, atol=1e-12)
    assert phi.output_dim == 6
    assert not phi.positive


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tiny", [0.0, 1e-30, 5e-14])
def test_rows_without_direction_map_to_zero(dtype, tiny, randn):
    z = randn(3, 4).to(dtype)
    z[1] = tiny  # 1e-30 and 5e-14 are zero in float16, which is a case too
    z.requires_grad_()
    out = Cosine(4)(z)
    out.float().pow(3).sum().backward()
    assert out.dtype == dtype
    assert (out[1] == 0).all()
    assert (z.grad[1] == 0).all()
    assert torch.isfinite(z.grad).all()
    assert (z.grad[[0, 2]] != 0).any()
    norms = out[[0, 2]].double().norm(dim=-1)
    assert_close(norms, torch.ones(2, dtype=torch.float64), rtol=0, atol=8 * torch.finfo(dtype).eps)


def test_cosine_norm_does_not_overflow_or_underflow_in_half():
    z = torch.tensor([[6e4, 6e4], [6e-8, 6e-8]], dtype=torch.float16)
    assert_close(Cosine(2)(z).float(), torch.full((2, 2), 0.5**0.5), rtol=1e-3, atol=0)


def test_cosine_gradients(randn):
    z = randn(3, 4).requires_grad_()
    assert torch.autograd.gradcheck(Cosine(4), (z,))
    assert torch.autograd.gradgradcheck(Cosine(4), (z,))


def test_second_derivative_is_finite_at_zero():
    z = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(Cosine(3)(z).sum(), z, create_graph=True)
    (second,) = torch.autograd.grad(first.sum() + z.sum(), z)
    assert_close(second, torch.ones_like(second))


@pytest.mark.parametrize("scale", [None, 1.0])
def test_positive_features_are_unbiased(scale, randn):
    """Within six standard errors (the variance is known) of exp(scale^2 <q, k>)."""
    p, m = 4, 200_000
    q, k = 0.5 * randn(8, p), 0.5 * randn(8, p)
    phi = PositiveRandomFeatures(p, m, scale=scale, seed=1)
    estimate = (phi(q) * phi(k)).sum(-1)
    factor = p**-0.5 if scale is None else 1.0
    target = torch.exp(factor * (q * k).sum(-1))
    u = factor**0.5 * (q + k)
    square = u.square().sum(-1)
    lengths = factor * (q.square().sum(-1) + k.square().sum(-1))
    variance = torch.exp(-lengths) * (torch.exp(2 * square) - torch.exp(square))
    assert ((estimate - target).abs() <= 6 * (variance / m).sqrt()).all()
    assert (6 * (variance / m).sqrt() < 0.1 * target).all()  # the bound is tight enough to fail


def test_positive_features_are_the_remark(randn):
    z = randn(5, 3)
    phi = PositiveRandomFeatures(3, 7, scale=1.0, dtype=torch.float64)
    assert phi.positive
    assert phi.output_dim == 7
    for row, features in zip(z, phi(z), strict=True):
        for w, feature in zip(phi.directions, features, strict=True):
            expected = math.exp(-row.dot(row) / 2) * math.exp(w.dot(row)) / math.sqrt(7)
            assert feature.item() == pytest.approx(expected, rel=1e-12)
    assert (phi(z) > 0).all()


def test_default_sizes_and_seeds():
    phi = PositiveRandomFeatures(6)
    assert phi.output_dim == 6
    assert phi.scale == pytest.approx(6**-0.25)
    assert torch.equal(phi.directions, PositiveRandomFeatures(6).directions)
    assert not torch.equal(phi.directions, PositiveRandomFeatures(6, seed=1).directions)
    assert list(phi.state_dict()) == ["directions"]


def test_drawing_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    PositiveRandomFeatures(6)
    assert torch.equal(before, torch.get_rng_state())


def test_meta_device_and_materialising():
    for phi in (PositiveRandomFeatures(4, device="meta"), _made_in_context()):
        assert phi.directions.device.type == "meta"
        assert phi(torch.empty(2, 4, device="meta")).shape == (2, 4)
        phi.to_empty(device="cpu")
        phi.reset_parameters()
        assert torch.equal(phi.directions, PositiveRandomFeatures(4).directions)


def _made_in_context():
    with torch.device("meta"):
        return PositiveRandomFeatures(4)


def test_autocast_does_not_round_the_exponent(randn):
    z = 2 * randn(50, 8, dtype=torch.float32)
    phi = PositiveRandomFeatures(8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = phi(z)
    assert_close(inside, phi(z), rtol=1e-6, atol=0)


def test_make_feature_map(randn):
    assert isinstance(make_feature_map("cosine", 4), Cosine)
    made = make_feature_map("exp", 4, dtype=torch.float64)
    assert isinstance(made, PositiveRandomFeatures)
    assert made.directions.dtype == torch.float64
    own = Cosine(4)
    assert make_feature_map(own, 4) is own


def test_bad_feature_maps():
    with pytest.raises(ValueError, match=r"'cosin' is unknown.*'cosine', 'exp'.*nearest: 'cosine'"):
        make_feature_map("cosin", 4)
    with pytest.raises(ValueError, match=r"head_dim = 5; expected 4"):
        make_feature_map(Cosine(5), 4)
    with pytest.raises(ValueError, match=r"3 channels; expected head_dim = 4"):
        Cosine(4)(torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"3 channels; expected head_dim = 4"):
        PositiveRandomFeatures(4)(torch.zeros(2, 3))
    with pytest.raises(ValueError, match="head_dim is 0"):
        Cosine(0)
    with pytest.raises(ValueError, match="output_dim is 0"):
        PositiveRandomFeatures(4, 0)
    with pytest.raises(ValueError, match=r"scale is -1\.0"):
        PositiveRandomFeatures(4, scale=-1.0)
    with pytest.raises(NotImplementedError, match="FeatureMap"):
        FeatureMap(2, 2)(torch.zeros(1, 2))
