"""Times inside the kernel: against the dense definition, blind to shifts, streamed as in one go."""

import pytest
import torch

import primal_attention as pa
from primal_attention.attention.rotation import Rotation, by_head

F64 = torch.float64
KINDS = {
    "primal-cosine": ("primal", {"feature_map": "cosine"}),
    "primal-elu": ("primal", {"feature_map": "elu"}),
    "primal-softmax": ("primal", {"feature_map": "softmax"}),  # wider than a head
    "linear": ("linear", {}),
    "softmax": ("softmax", {}),
}
W = torch.tensor([2.0, 0.3], dtype=F64)
BY_HEAD = by_head(torch.tensor([5.0, 2.0, 0.3, 0.1], dtype=F64), 2)


def rotation(times, w=BY_HEAD):
    return Rotation.of(times, w)


def build(kind, **options):
    torch.manual_seed(0)
    name, own = KINDS[kind]
    return pa.make_attention(name, 8, 2, dtype=F64, **own, **options).eval()


def draw(batch=2, length=9):
    g = torch.Generator().manual_seed(1)
    x = torch.randn(batch, length, 8, generator=g, dtype=F64)
    gaps = torch.rand(batch, length, generator=g, dtype=F64)
    return x, 1.5e9 + gaps.cumsum(1)


every = pytest.mark.parametrize("kind", KINDS)
either = pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])


def test_a_rotation_keeps_lengths_and_knows_differences_alone():
    x, times = draw()
    turned = rotation(times, W).turn(x)
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    torch.testing.assert_close(turned[..., 4:], x[..., 4:])  # two pairs are turned
    later = rotation(times + 86400.0, W).turn(x)
    torch.testing.assert_close(turned @ turned.mT, later @ later.mT, rtol=0, atol=1e-6)
    times = times - 1.5e9
    turned = rotation(times, W).turn(x)
    complex_ = torch.complex(x[..., :2], x[..., 2:4]) * torch.exp(1j * W * times.unsqueeze(-1))
    torch.testing.assert_close(turned[..., :4], torch.cat([complex_.real, complex_.imag], -1))


def test_heads_may_have_frequencies_of_their_own():
    x, times = draw()
    heads = x.unflatten(-1, (2, 4)).transpose(1, 2)
    turned = rotation(times).turn(heads)
    assert BY_HEAD.tolist() == [[5.0, 0.3], [2.0, 0.1]]
    for h in range(2):
        alone = rotation(times, BY_HEAD[h]).turn(heads[:, h])
        torch.testing.assert_close(turned[:, h], alone)


@every
@either
def test_the_output_is_that_of_the_kernel(kind, causal):
    """o_i is linear in what is mixed, with weights `<R_i a_i, R_j b_j>`."""
    layer = build(kind, causal=causal)
    x, times = draw()
    out, weights = layer(x, rotation=rotation(times), need_weights=True, average_attn_weights=False)
    plain = layer(x, need_weights=True, average_attn_weights=False)[1]
    assert not torch.allclose(weights, plain)
    if kind.startswith("primal"):
        out = out - layer(x * 0, rotation=rotation(times))[0]
        dual = (x @ layer.dual_weight.mT).unflatten(-1, (2, 2, -1)).permute(2, 0, 3, 1, 4)
        turned = rotation(times).turn
        call, _ = layer._arrange(x, None, None, None)
        phi_q, phi_k = layer._both_features(call)
        kernel, back = turned(phi_q) @ turned(phi_k).mT, turned(phi_k) @ turned(phi_q).mT
        plain_k, plain_b = phi_q @ phi_k.mT, phi_k @ phi_q.mT
        if causal:
            kernel, back, plain_k, plain_b = (t.tril() for t in (kernel, back, plain_k, plain_b))
        size = torch.arange(1.0, 10.0, dtype=F64) if causal else torch.full((9,), 9.0, dtype=F64)
        rows_k, rows_b = size.unsqueeze(-1), size.unsqueeze(-1)
        if layer.feature_map.positive:
            rows_k, rows_b = plain_k.sum(-1, keepdim=True), plain_b.sum(-1, keepdim=True)
        scores = torch.cat([kernel @ dual[1] / rows_k, back @ dual[0] / rows_b], -1)
        heads = torch.nn.functional.linear(scores, layer.concat.weight)
        expected = torch.nn.functional.linear(
            heads.transpose(1, 2).flatten(2), layer.out_proj.weight
        )
        torch.testing.assert_close(weights, kernel / (rows_k if layer.feature_map.positive else 1))
    else:
        v = (x @ layer.in_proj_weight[16:].mT).unflatten(-1, (2, 4)).transpose(1, 2)
        expected = layer.out_proj((weights @ v).transpose(1, 2).flatten(2))
    torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-10)


@every
@either
def test_a_shift_of_all_times_changes_nothing(kind, causal):
    layer = build(kind, causal=causal)
    x, times = draw()
    out = layer(x, rotation=rotation(times))[0]
    torch.testing.assert_close(
        layer(x, rotation=rotation(times - 1.5e9))[0], out, rtol=0, atol=1e-6
    )
    other = layer(x, rotation=rotation(times + times.frac()))[0]
    assert not torch.allclose(other, out, atol=1e-3)  # not a shift


@every
def test_streamed_equals_full(kind):
    layer = build(kind, causal=True)
    x, times = draw()
    full, state, found = layer(x, rotation=rotation(times))[0], None, []
    for cut in (slice(0, 4), slice(4, 5), slice(5, 9)):
        out, state = layer.prefill(x[:, cut], None, state, rotation(times[:, cut]))
        found.append(out)
    torch.testing.assert_close(torch.cat(found, 1), full, rtol=1e-9, atol=1e-10)


@every
@either
def test_padding_changes_nothing(kind, causal):
    layer = build(kind, causal=causal)
    x, times = draw()
    ignore = torch.zeros(2, 9, dtype=torch.bool)
    ignore[0, 6:] = ignore[1, 2] = True
    spoilt = x.masked_fill(ignore.unsqueeze(-1), torch.nan)
    out = layer(spoilt, key_padding_mask=ignore, rotation=rotation(times))[0]
    for i in range(2):
        kept = ~ignore[i]
        alone = layer(x[i : i + 1, kept], rotation=rotation(times[i : i + 1, kept]))[0]
        torch.testing.assert_close(out[i, kept], alone[0], rtol=1e-9, atol=1e-10)
        assert not out[i, ~kept].any()


@every
@either
def test_gradients(kind, causal):
    layer = build(kind, causal=causal)
    x, times = draw(1, 4)
    torch.autograd.gradcheck(
        lambda x, w: layer(x, rotation=Rotation.of(times - times[:, :1], w))[0],
        (x.requires_grad_(), W.clone().requires_grad_()),
    )


def test_the_objective_sees_the_rotation():
    layer = build("primal-cosine", causal=True).train()
    x, times = draw()
    layer(x, rotation=rotation(times))
    turned = float(pa.ksvd_loss(layer).detach())
    layer(x)
    assert turned != pytest.approx(float(pa.ksvd_loss(layer).detach()))


def test_who_knows_no_times_says_so():
    x, times = draw()
    with pytest.raises(ValueError, match='expected weights="tied"'):
        pa.make_attention("primal", 8, 2, weights="free", dtype=F64)(x, rotation=rotation(times))
    with pytest.raises(ValueError, match="attentions that know times"):
        pa.make_attention("performer", 8, 2, dtype=F64)(x, rotation=rotation(times))
    with pytest.raises(ValueError, match="expected self-attention"):
        build("softmax")(x, x + 1, rotation=rotation(times))
    with pytest.raises(ValueError, match=r"rotation.cos has shape \(2, 2, 3, 2\)"):
        build("linear")(x, rotation=rotation(times[:, :3]))
