"""Primal attention with rotary positions against its formula, written out."""

import pytest
import torch
from torch.testing import assert_close

import primal_attention as pa
from primal_attention.attention.primal import rotary
from primal_attention.attention.primal.rotary import RotaryPrimalAttention
from primal_attention.kernels import reference

CLOSE = {"rtol": 1e-9, "atol": 1e-11}
WIDTH, HEADS, P, RANK, N = 10, 2, 4, 3, 9


def rotate(q, k, cos, sin):
    """Pairs (a, b) = (x_i, x_{i + p/2}) turned by an angle, as Llama does."""

    def turn(x):
        a, b = x.chunk(2, -1)
        return x * cos.unsqueeze(1) + torch.cat([-b, a], -1) * sin.unsqueeze(1)

    return turn(q), turn(k)


def angles(positions):
    speeds = torch.tensor([1.0, 0.1], dtype=torch.float64)
    angle = positions.double().unsqueeze(-1) * speeds
    angle = torch.cat([angle, angle], -1)
    return angle.cos(), angle.sin()


@pytest.fixture(
    params=[("tied", "cosine"), ("tied", "exp"), ("tied", "elu"), ("free", "cosine")], ids="-".join
)
def layer(request):
    torch.manual_seed(0)
    weights, feature_map = request.param
    layer = RotaryPrimalAttention(
        WIDTH, HEADS, P, rank=RANK, weights=weights, feature_map=feature_map, bias=True,
        dtype=torch.float64,
    )  # fmt: skip
    layer.rotate = rotate
    torch.nn.init.normal_(layer.in_proj_bias)
    return layer.eval()


@pytest.fixture
def x():
    return torch.randn(2, N, WIDTH, dtype=torch.float64)


def positions(batch=2, start=0, length=N):
    return angles(torch.arange(start, start + length).expand(batch, -1))


def naive(layer, x, rotation):
    """One sequence (N, d), one position and head at a time."""
    out = []
    rows = x / x.square().mean(-1, keepdim=True).sqrt() if layer.feature_map.unit_rows else x
    qk = (rows @ layer.in_proj_weight.T + layer.in_proj_bias).unflatten(-1, (2, HEADS, P))
    q, k = qk[:, 0].transpose(0, 1), qk[:, 1].transpose(0, 1)  # (h, N, p)
    if layer.weights == "tied":
        q, k = (t[0] for t in rotate(q[None], k[None], *rotation))
        dual = (x @ layer.dual_weight.T).unflatten(-1, (2, HEADS, RANK))
        phi_q, phi_k = layer.feature_map(torch.stack([q, k]))
    for i in range(len(x)):
        heads = []
        for h in range(HEADS):
            if layer.weights == "tied":
                row = phi_k[h, : i + 1] @ phi_q[h, i]
                column = phi_q[h, : i + 1] @ phi_k[h, i]
                positive = layer.feature_map.positive
                by_row, by_column = (row.sum(), column.sum()) if positive else (i + 1, i + 1)
                e = row @ dual[: i + 1, 1, h] / by_row
                r = column @ dual[: i + 1, 0, h] / by_column
            else:
                e = layer.w_e[h].T @ layer.feature_map(q[h, : i + 1].mean(0))
                r = layer.w_r[h].T @ layer.feature_map(k[h, : i + 1].mean(0))
            heads.append(layer.concat(torch.cat([e, r])))
        out.append(layer.out_proj(torch.cat(heads)))
    return torch.stack(out)


def test_formula(layer, x):
    rotation = positions()
    out, _ = layer(x, None, rotation)
    for b in range(2):
        expected = naive(layer, x[b], (rotation[0][b : b + 1], rotation[1][b : b + 1]))
        assert_close(out[b], expected, **CLOSE)


def test_only_relative_positions_count(layer, x):
    """Exactly with the cosine map; random features are not invariant to rotations."""
    shifted, out = layer(x, None, positions(start=5))[0], layer(x, None, positions())[0]
    assert torch.allclose(shifted, out, **CLOSE) != layer.feature_map.positive


def test_positions_matter_to_tied_weights(layer, x):
    stretched = angles(3 * torch.arange(N).expand(2, -1))
    same = torch.allclose(layer(x, None, stretched)[0], layer(x, None, positions())[0])
    assert same == (layer.weights == "free")


@pytest.mark.parametrize("cut", [1, 4])
def test_streamed_equals_full(layer, x, cut):
    full, _ = layer(x, None, positions())
    first, state = layer(x[:, :cut], None, positions(length=cut))
    second, _ = layer(x[:, cut:], None, positions(start=cut, length=N - cut), state)
    assert_close(torch.cat([first, second], 1), full, **CLOSE)


def test_padding_on_the_left(layer, x):
    ignore = torch.zeros(2, N, dtype=torch.bool)
    ignore[1, :3] = True
    shifted = angles(torch.stack([torch.arange(N), (torch.arange(N) - 3).clamp(min=0)]))
    x[1, :3] = torch.nan
    out, _ = layer(x, ignore, shifted)
    alone, _ = layer(x[1:, 3:], None, positions(1, length=N - 3))
    assert_close(out[1:, 3:], alone, **CLOSE)
    assert not out[1, :3].any()


def test_ksvd_loss_is_the_formula(layer, x, monkeypatch):
    """J = 1/2 mean e^T Lambda e + 1/2 mean r^T Lambda r - Tr(W_e^T W_r), from the scores."""
    layer.train()
    ignore = torch.zeros(2, N, dtype=torch.bool)
    ignore[1, 5:] = True
    layer(x, ignore, positions())
    loss = pa.ksvd_loss(layer)
    seen = []
    for room, name in ((reference, "energy"), (rotary, "objective_terms")):
        original = getattr(room, name)
        monkeypatch.setattr(room, name, lambda *a, f=original: seen.append(a) or f(*a))
    layer(x, ignore, positions())
    (scores,), (_, _, tied) = seen
    lam = layer.sqrt_lambda.square()
    values = []
    for b, length in enumerate((N, 5)):
        e, r = scores[b, 0, :, :length], scores[b, 1, :, :length]
        w_e, w_r = (layer.w_e, layer.w_r) if tied is None else tied[b]
        energy = ((e.square() + r.square()) * lam[:, None]).sum((1, 2)) / length
        values.append((energy / 2 - (w_e * w_r).sum((1, 2))).mean() ** 2)
    assert_close(loss, torch.stack(values).mean(), **CLOSE)
    loss.backward()
    assert layer.sqrt_lambda.grad.abs().sum() > 0
    assert layer.in_proj_weight.grad.abs().sum() > 0


def test_refusals():
    with pytest.raises(ValueError, match="see ahead"):
        RotaryPrimalAttention(8, 2, 4, rank=2, weights="data")
    with pytest.raises(ValueError, match='expected "cosine"'):
        RotaryPrimalAttention(8, 2, 4, rank=2, weights="free", feature_map="exp")
    layer = RotaryPrimalAttention(8, 2, 4, rank=2, weights="tied")
    layer.rotate = rotate
    with pytest.raises(ValueError, match="rotation is None"):
        layer(torch.randn(1, 3, 8))
