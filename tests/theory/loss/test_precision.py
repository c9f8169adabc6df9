"""The objective under autocast and in narrow layers."""

import pytest
import torch
from torch.testing import assert_close

import primal_attention as pa


def test_autocast(kind, make_encoder, gradients, held, randn):
    model, x = make_encoder(kind, dtype=torch.float32), randn(4, 16, 8, dtype=torch.float32)
    out = model(x)
    expected = pa.ksvd_loss(model)
    (out.square().mean() + expected).backward()
    wanted = gradients(model)
    with torch.autocast("cpu", torch.bfloat16):
        out = model(x)
        found = pa.ksvd_loss(model)
    assert found.dtype == torch.float32
    assert_close(found, expected, rtol=0.05, atol=1e-3)
    (out.float().square().mean() + found).backward()
    assert [held(layer) for layer in model.layers] == [0, 0]
    for name, g in gradients(model).items():
        assert g.dtype == torch.float32
        error = (g - wanted[name]).norm() / wanted[name].norm().clamp(min=1e-6)
        assert error < 0.15, name


def test_autocast_reads_the_same_inside_and_outside(make_encoder, randn):
    model = make_encoder({"weights": "tied"}, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        model(randn(2, 8, 8, dtype=torch.float32))
        inside = pa.ksvd_loss(model)
    assert torch.equal(inside, pa.ksvd_loss(model))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_layers_sum_in_float32(kind, dtype, make_encoder, randn):
    model, x = make_encoder(kind, dtype=torch.float32), randn(2, 300, 8, dtype=torch.float32)
    model(x)
    expected = pa.ksvd_loss(model, positions="sum")
    narrow = make_encoder(kind, dtype=dtype)
    narrow(x.to(dtype))
    found = pa.ksvd_loss(narrow, positions="sum")
    assert found.dtype == torch.float32
    assert_close(found, expected, rtol=0.1, atol=1e-2)
    found.backward()
    assert all(p.grad.isfinite().all() for p in narrow.layers.parameters() if p.grad is not None)
