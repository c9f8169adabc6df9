import math

import pytest
import torch
from torch.testing import assert_close

from primal_attention.theory import (
    Cosine,
    Elu,
    FeatureMap,
    PositiveRandomFeatures,
    TwoSidedSoftmax,
    make_feature_map,
)
from primal_attention.theory.features import FEATURE_MAPS, SharpMap

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
    with pytest.raises(
        ValueError, match=r"'cosin' \(did you mean 'cosine'\?\); expected one of cosine, elu"
    ):
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


# -- maps with a sharpness -------------------------------------------------------------------------


def sharp_maps():
    return [
        Elu(4, 3, dtype=torch.float64),
        Elu(4, 3, power=1.0, dtype=torch.float64),
        Elu(4, 3, power=1.5, dtype=torch.float64),
        Elu(4, 3, learn_power=True, dtype=torch.float64),
        TwoSidedSoftmax(4, 3, dtype=torch.float64),
    ]


def names(maps):
    return [f"{type(m).__name__}-{i}" for i, m in enumerate(maps)]


every_sharp_map = pytest.mark.parametrize("phi", sharp_maps(), ids=names(sharp_maps()))


@pytest.fixture
def apart(randn):
    """A map whose heads and sides all differ."""

    def draw(phi):
        with torch.no_grad():
            for parameter in phi.parameters():
                parameter.add_(0.4 * randn(*parameter.shape))
        return phi

    return draw


@every_sharp_map
def test_sharp_maps_by_hand(phi, apart, randn):
    apart(phi)
    z = randn(2, 2, 3, 5, 4)
    found = phi(z)
    assert found.shape == (2, 2, 3, 5, phi.output_dim)
    assert (found > 0).all()
    for side in range(2):
        for head in range(3):
            u = math.exp(phi.log_sharpness[side, head].item()) * z[:, side, head]
            if isinstance(phi, TwoSidedSoftmax):
                expected = torch.cat([u.softmax(-1), torch.softmax(-u, -1)], -1)
            else:
                own = phi.log_power
                power = phi.power if own is None else math.exp(own[side, head].item())
                expected = (torch.nn.functional.elu(u) + 1) ** power
            assert_close(found[:, side, head], expected, rtol=1e-12, atol=1e-12)


@every_sharp_map
def test_folded_maps_make_the_same_features(phi, apart, randn):
    apart(phi)
    x, weight, bias = randn(2, 5, 7), randn(24, 7), randn(24)
    for b in (bias, None):

        def sides(w, c):
            rows = torch.nn.functional.linear(x, w, c).unflatten(-1, (2, 3, 4))
            return rows.permute(0, 2, 3, 1, 4)

        plain, folded = sides(weight, b), sides(*phi.fold(weight, b))
        assert_close(phi.features(folded), phi(plain), rtol=1e-12, atol=1e-12)


@every_sharp_map
def test_sharp_map_gradients(phi, apart, randn):
    apart(phi)
    phi.requires_grad_()
    z = randn(2, 3, 2, 4).requires_grad_()
    parameters = tuple(phi.parameters())

    def run(z, *values):
        named = dict(zip((n for n, _ in phi.named_parameters()), values, strict=True))
        return torch.func.functional_call(phi, named, (z,))

    assert torch.autograd.gradcheck(run, (z, *parameters))
    assert torch.autograd.gradgradcheck(run, (z, *parameters))


def test_sharp_features_stay_above_zero_and_finite():
    """Where torch's elu(u) + 1 rounds to zero, and where the gradient meets a zero feature."""
    u = torch.tensor([-30.0, -20.0, 0.0, 40.0])
    assert_close(Elu(4).features(u), torch.tensor([0.0, math.exp(-40), 1.0, 41.0**2]))
    assert Elu(4).features(u)[0] > 0
    far = torch.full((4,), -1e4, requires_grad=True)
    for power in (1.0, 2.0, 1.5, 0.5):
        out = Elu(4, power=power).features(far)
        (first,) = torch.autograd.grad(out.sum(), far, create_graph=True)
        (second,) = torch.autograd.grad(first.sum() + far.sum(), far)
        assert (first == 0).all()
        assert torch.isfinite(second).all()


def test_sharpness_narrows_what_a_query_sees(randn):
    """The largest share of a row of the normalised kernel grows with a and with b."""
    q, k = randn(1, 2, 1, 60, 8).unbind(1)
    both = torch.stack([q, k], 1)

    def share(**options):
        phi = Elu(8, dtype=torch.float64, **options)(both)
        kernel = phi[:, 0] @ phi[:, 1].mT
        return (kernel / kernel.sum(-1, keepdim=True)).amax(-1).mean()

    flat, sharp = share(sharpness=0.5, power=1.0), share(sharpness=4.0, power=2.0)
    assert flat < share(sharpness=2.0, power=1.0) < share(sharpness=2.0, power=2.0) < sharp


def test_what_a_state_holds():
    assert list(Elu(4, 3).state_dict()) == ["log_sharpness"]
    assert list(Elu(4, 3, learn_power=True).state_dict()) == ["log_sharpness", "log_power"]
    assert list(TwoSidedSoftmax(4, 3).state_dict()) == ["log_sharpness"]
    assert Elu(4, 3).log_sharpness.shape == (2, 3)
    assert_close(Elu(4, 3, sharpness=3.0).sharpness, torch.full((2, 3), 3.0))
    assert list(Cosine(4).state_dict()) == []


def test_shared_sharpness_serves_any_heads(randn):
    phi = Elu(4, dtype=torch.float64)
    assert phi(randn(2, 2, 5, 3, 4)).shape == (2, 2, 5, 3, 4)
    assert make_feature_map(phi, 4, 7) is phi


# -- orthogonal directions -------------------------------------------------------------------------


def test_orthogonal_directions():
    plain = PositiveRandomFeatures(6, 15).directions
    turned = PositiveRandomFeatures(6, 15, orthogonal=True).directions
    assert_close(turned.norm(dim=1), plain.norm(dim=1))
    for block in turned.split(6):
        gram = block @ block.mT
        assert_close(gram, gram.diagonal().diag(), rtol=0, atol=1e-4)
    assert not torch.equal(turned, plain)


def test_orthogonal_features_are_unbiased_with_less_variance(randn):
    q, k = 0.6 * randn(4), 0.6 * randn(4)
    target = math.exp(float(q @ k))

    def draws(orthogonal):
        found = []
        for seed in range(1500):
            phi = PositiveRandomFeatures(
                4, scale=1.0, seed=seed, orthogonal=orthogonal, dtype=torch.float64
            )
            found.append(float(phi(q) @ phi(k)))
        return torch.tensor(found, dtype=torch.float64)

    plain, turned = draws(False), draws(True)
    for estimates in (plain, turned):
        error = estimates.mean() - target
        assert abs(float(error)) < 5 * float(estimates.std()) / len(estimates) ** 0.5
    assert turned.var() < 0.97 * plain.var()


def test_every_name_makes_a_map():
    for name in FEATURE_MAPS:
        phi = make_feature_map(name, 4, 2, dtype=torch.float64)
        assert phi(torch.ones(2, 2, 3, 4, dtype=torch.float64)).shape == (2, 2, 3, phi.output_dim)
    assert make_feature_map("exp-orthogonal", 4).orthogonal
    assert not make_feature_map("exp", 4).orthogonal


def test_bad_sharp_maps(randn):
    with pytest.raises(ValueError, match=r"sharpness is 0\.0; expected a positive number"):
        Elu(4, sharpness=0.0)
    with pytest.raises(ValueError, match="num_heads is 0; expected a positive number"):
        TwoSidedSoftmax(4, 0)
    with pytest.raises(ValueError, match="power is -1; expected a positive number"):
        Elu(4, power=-1)
    with pytest.raises(ValueError, match=r"shape \(3, 4\); expected \(\.\.\., 2, h, N, p\)"):
        Elu(4)(randn(3, 4))
    with pytest.raises(ValueError, match="h = 3 heads"):
        Elu(4, 3)(randn(2, 5, 1, 4))
    with pytest.raises(ValueError, match="made for 3 heads; expected 2, or 1"):
        make_feature_map(Elu(4, 3), 4, 2)
    assert issubclass(Elu, SharpMap)
