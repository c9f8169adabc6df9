"""KSVD diagnostics from small matrices, against the definitions on the formed kernel."""

import json

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn

import primal_attention as pa
from primal_attention.analysis import ksvd_diagnostics
from primal_attention.analysis.diagnostics import principal_angles

D, H, N, S = 12, 2, 25, 3
KINDS = {
    "data": {"weights": "data", "anchors": 7},
    "free": {"weights": "free"},
    "tied": {"weights": "tied", "feature_map": "cosine"},
    "causal": {"weights": "free", "causal": True},
    "tied, elu": {"weights": "tied", "feature_map": "elu"},
    "free, elu": {"weights": "free", "feature_map": "elu"},
}


def layer_of(kind):
    torch.manual_seed(2)
    layer = pa.PrimalAttention(D, H, rank=S, dtype=torch.float64, **KINDS[kind]).eval()
    nn.init.normal_(layer.in_proj_bias)
    return layer


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def kernel(layer, x, **options):
    with torch.no_grad():
        return layer(x, need_weights=True, average_attn_weights=False, **options)[1]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_against_the_formed_kernel(kind, masked):
    layer, x = layer_of(kind), draw(2, N, D)
    mask = torch.arange(N) >= torch.tensor([N, 14])[:, None] if masked else None
    given = {"query": x, "key_padding_mask": mask}
    found = ksvd_diagnostics(layer, given).layers[0]
    with torch.no_grad():
        problem = layer.ksvd_problem(**given)
        assert_allclose(found.objective, problem.objective().numpy(), atol=1e-10)
        K = kernel(layer, x, key_padding_mask=mask)
        if kind == "tied, elu":  # rows and columns are normalised, not rows alone
            K = problem.factors().dense()
        skew = (K - K.mT).norm(dim=(-2, -1)) / (K + K.mT).norm(dim=(-2, -1))
        assert_allclose(found.asymmetry, skew.numpy(), rtol=1e-8)
        U, sigma, Vh = torch.linalg.svd(K)
        assert_allclose(found.inverse_sigma, 1 / sigma[..., :S].numpy(), rtol=1e-8)
        counts = torch.full((2, 1, 1), N) if mask is None else (~mask).sum(-1)[:, None, None]
        lam = (layer.sqrt_lambda.square() / counts).sort(-1).values
        assert_allclose(found.lam, lam.numpy(), rtol=1e-12)
        e, r = problem.scores()
        for angles, scores, vectors in (
            (found.angles_e, e, U[..., :S]),
            (found.angles_r, r, Vh.mT[..., :S]),
        ):
            cosines = torch.linalg.svdvals(torch.linalg.qr(scores).Q.mT @ vectors)
            assert_allclose(angles, cosines.clamp(max=1).arccos().rad2deg().numpy(), atol=1e-5)


@pytest.mark.parametrize("kind", ["data", "free", "tied"])
def test_shares_are_those_of_the_output(kind):
    layer, x = layer_of(kind), draw(1, N, D)
    found = ksvd_diagnostics(layer, x).layers[0]
    with torch.no_grad():
        e, r = layer.ksvd_problem(x).scores()
        out = layer.out_proj.weight.unflatten(1, (H, D // H))  # (d, h, p)
        for h in range(H):
            W_c = layer.concat.weight
            o_e = e[0, h] @ W_c[:, :S].T @ out[:, h].T
            o_r = r[0, h] @ W_c[:, S:].T @ out[:, h].T
            share = o_e.square().sum() / (o_e.square().sum() + o_r.square().sum())
            assert found.share_e[0, h] == pytest.approx(float(share), rel=1e-9)


@pytest.mark.parametrize("kind", ["data", "free"])
def test_at_the_exact_solution_everything_vanishes(kind):
    layer, x = layer_of(kind), draw(1, N, D)
    layer.init_ksvd_(x)
    found = ksvd_diagnostics(layer, x).layers[0]
    assert_allclose(found.objective, 0, atol=1e-10)
    assert_allclose(found.angles_e, 0, atol=1e-5)
    assert_allclose(found.angles_r, 0, atol=1e-5)
    assert_allclose(found.lambda_ratio, 1, rtol=1e-8)


def test_a_symmetric_kernel_is_symmetric():
    layer, x = layer_of("free"), draw(1, N, D)
    with torch.no_grad():
        layer.in_proj_weight[D:] = layer.in_proj_weight[:D]
        layer.in_proj_bias[D:] = layer.in_proj_bias[:D]
    assert_allclose(ksvd_diagnostics(layer, x).layers[0].asymmetry, 0, atol=1e-7)


def test_small_angles_are_exact():
    a = torch.eye(5, dtype=torch.float64)[:, :2]
    b = a.clone()
    b[4, 1] = 1e-10
    assert_allclose(principal_angles(a, b)[1], np.rad2deg(1e-10), rtol=1e-6)


def test_cross_attention_has_no_asymmetry():
    layer = layer_of("data")
    found = ksvd_diagnostics(layer, (draw(1, 9, D), draw(1, 14, D, seed=1)))
    assert found.layers[0].asymmetry is None
    assert json.loads(json.dumps(found.to_dict()))["layers"][0]["asymmetry_by_head"] is None
    assert " -" in str(found)


def test_more_directions_than_the_kernel_has():
    torch.manual_seed(0)
    layer = pa.PrimalAttention(D, H, rank=9, weights="free", dtype=torch.float64).eval()
    found = ksvd_diagnostics(layer, [draw(1, N, D), draw(1, 4, D)]).layers[0]
    assert found.inverse_sigma.shape == (2, H, 4)
    assert found.angles_e.shape == (2, H, 4)


def test_a_model_and_what_is_skipped():
    class Stack(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = layer_of("free"), layer_of("data")
            self.third = layer_of("tied")
            self.third.causal = True
            self.soft = pa.SoftmaxAttention(D, H, dtype=torch.float64)

        def forward(self, x):
            for layer in (self.first, self.soft, self.second, self.third):
                x = layer(x)[0]
            return x

    model = Stack()
    pa.fold_(model.first.eval())
    found = ksvd_diagnostics(model, draw(2, N, D))
    assert [one.name for one in found.layers] == ["second"]
    assert set(found.skipped) == {"first", "third"}
    assert "not folded" in found.skipped["first"]
    json.dumps(found.to_dict(), allow_nan=False)
    assert "skipped third" in str(found)
    with pytest.raises(ValueError, match="SoftmaxAttention has no primal layer"):
        ksvd_diagnostics(pa.SoftmaxAttention(D, H), draw(1, N, D))
