"""The layer against equations (1), (8), (9), (11) and (14), written out per sample and head."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from primal_attention import ksvd_loss
from primal_attention.theory import Elu

from ....pairs import pairwise

EXACT = {"rtol": 1e-10, "atol": 1e-11}


# -- the reference: nothing here is shared with the library but the parameters ---------------------


def feature(z, feature_map, side, head):
    """g(z) of Remark 4.1, row by row."""
    if isinstance(feature_map, Elu):
        u = z * torch.exp(feature_map.log_sharpness[side, head])
        return torch.where(u < 0, torch.exp(u.clamp(max=0)), 1 + u) ** 2
    if feature_map.positive:
        u = z * feature_map.scale
        w = feature_map.directions
        columns = [torch.exp(u @ w_i) * torch.exp(-(u * u).sum(-1) / 2) for w_i in w]
        return torch.stack(columns, dim=-1) / math.sqrt(len(w))
    return torch.stack([row / torch.sqrt((row * row).sum()) for row in z])


def sample_rows(y, n):
    """round(linspace(0, L - 1, n)), ties to even, in exact arithmetic."""
    last = len(y) - 1
    chosen = [round(Fraction(i * last, max(n - 1, 1))) for i in range(n)]
    return torch.stack([y[j] for j in chosen])


def mean_rows(y, n):
    """Means of n equal consecutive segments; with fewer rows than segments single rows repeat."""
    k = min(n, len(y))
    segments = [[y[j] for j in range(len(y)) if j * k // len(y) == i] for i in range(k)]
    means = [sum(rows) / len(rows) for rows in segments]
    return torch.stack([means[i * k // n] for i in range(n)])


def running_means(z):
    return torch.stack([z[: i + 1].sum(0) / (i + 1) for i in range(len(z))])


def head_scores(layer, h, x, y):
    """e, r at the points x, r at the context y, and Tr(W_e^T W_r), of one head; x is y allowed."""
    d, p = layer.embed_dim, layer.head_dim
    rows = slice(h * p, (h + 1) * p)
    w_q, w_k = layer.in_proj_weight[:d][rows], layer.in_proj_weight[d:][rows]
    b_q = b_k = 0.0
    if layer.in_proj_bias is not None:
        b_q, b_k = layer.in_proj_bias[:d][rows], layer.in_proj_bias[d:][rows]

    def phi(points):
        if layer.causal and layer.weights == "free":  # queries and keys are linear
            points = running_means(points)
        if isinstance(layer.feature_map, Elu):
            points = torch.stack([row / torch.sqrt((row * row).mean()) for row in points])
        q, k = points @ w_q.T + b_q, points @ w_k.T + b_k
        return feature(q, layer.feature_map, 0, h), feature(k, layer.feature_map, 1, h)

    (q_x, k_x), (q_y, k_y) = phi(x), phi(y)
    positive = layer.feature_map.positive
    seen = torch.ones(len(x), len(y), dtype=x.dtype)  # which j enter the sums at i
    if layer.causal:
        seen = torch.tensor([[float(j <= i) for j in range(len(y))] for i in range(len(x))])
        seen = seen.to(x.dtype)

    if layer.weights == "tied":
        s, heads = layer.rank, layer.num_heads
        v_e, v_r = layer.dual_weight[: heads * s], layer.dual_weight[heads * s :]
        h_e = y @ v_e[h * s : (h + 1) * s].T
        h_r = y @ v_r[h * s : (h + 1) * s].T

        def along(kernel, dual, seen):  # equation (8): the kernel formed
            kernel = kernel * seen
            below = kernel.sum(-1) if positive else seen.sum(-1)
            return kernel @ dual / below.unsqueeze(-1)

        e = along(q_x @ k_y.T, h_r, seen)
        r = along(k_x @ q_y.T, h_e, seen)
        at_keys = torch.ones(len(y), len(y), dtype=x.dtype)
        at_keys = seen if layer.causal else at_keys
        r_y = along(k_y @ q_y.T, h_e, at_keys)
        w_e = sum(torch.outer(k_y[j], h_r[j]) for j in range(len(y))) / len(y)
        w_r = sum(torch.outer(q_y[j], h_e[j]) for j in range(len(y))) / len(y)
        return e, r, r_y, torch.trace(w_e.T @ w_r)

    w_e, w_r = layer.w_e[h], layer.w_r[h]
    trace = torch.trace(w_e.T @ w_r)
    if layer.weights == "data":
        rule = sample_rows if layer.anchor_rule == "sample" else mean_rows
        f = rule(y, layer.anchors)[:, rows]
        w_e, w_r = f.T @ w_e, f.T @ w_r
    e, r, r_y = q_x @ w_e, k_x @ w_r, k_y @ w_r
    if positive:
        d_x = ((q_x @ k_y.T) * seen).sum(-1)
        d_y = ((q_y @ k_y.T) * (seen if layer.causal else 1.0)).sum(-1)
        e, r = e / d_x.sqrt().unsqueeze(-1), r / d_x.sqrt().unsqueeze(-1)
        r_y = r_y / d_y.sqrt().unsqueeze(-1)
    return e, r, r_y, trace


def reference(layer, x, y=None, ignore=None, positions="mean"):
    """The output (B, N, d) and mean_b (mean_h J)^2."""
    outputs, squares = [], []
    for b in range(len(x)):
        context = x[b] if y is None else y[b]
        keep = range(len(context))
        if ignore is not None:
            keep = [j for j in keep if not ignore[b, j]]
        context = torch.stack([context[j] for j in keep])
        points = context if y is None else x[b]
        by_head, objectives = [], []
        for h in range(layer.num_heads):
            e, r, r_y, trace = head_scores(layer, h, points, context)
            by_head.append(layer.concat(torch.cat([e, r], dim=-1)))
            lam = torch.diag(layer.sqrt_lambda[h] ** 2)
            energy_e = sum(e_i @ lam @ e_i for e_i in e)
            energy_r = sum(r_j @ lam @ r_j for r_j in r_y)
            if positions == "mean":
                energy_e, energy_r = energy_e / len(e), energy_r / len(r_y)
            objectives.append(energy_e / 2 + energy_r / 2 - trace)
        out = layer.out_proj(torch.cat(by_head, dim=-1))
        if y is None and ignore is not None:
            at = dict(zip(keep, out, strict=True))
            none = torch.zeros(layer.embed_dim, dtype=x.dtype)
            out = torch.stack([at.get(j, none) for j in range(x.shape[1])])
        outputs.append(out)
        squares.append((sum(objectives) / len(objectives)) ** 2)
    return torch.stack(outputs), sum(squares) / len(squares)


def check(layer, x, y, ignore, probe, gradients, run, passes=(True,)):
    """The fast passes, the plain ones, or both."""
    for positions in ("mean", "sum"):
        x_ref = x.clone().requires_grad_()
        y_ref = None if y is None else y.clone().requires_grad_()
        out, loss = reference(layer, x_ref, y_ref, ignore, positions)
        tensors = {"input": x_ref} if y is None else {"input": x_ref, "context": y_ref}
        expected = gradients((out.square() * probe).sum() + loss, layer, **tensors)
        assert loss > 1e-4  # a loss of zero would compare nothing
        for fast in passes:
            found = run(layer, x, y, ignore, fast=fast, positions=positions, probe=probe)
            assert_close(found[0], out.detach(), **EXACT)
            assert_close(found[1], loss.detach(), **EXACT)
            assert found[2].keys() == expected.keys()
            for name, gradient in expected.items():
                assert_close(found[2][name], gradient, msg=lambda m, n=name: f"{n}: {m}", **EXACT)
        moved = ("in_proj_weight", "sqrt_lambda", "concat.weight", "out_proj.weight", "input")
        for name in moved:
            assert expected[name].abs().max() > 1e-6


CALLS = [
    *((kind, cross) for kind in ("data-sample", "data-mean", "free", "tied") for cross in (0, 1)),
    ("free-causal", 0),
    ("tied-causal", 0),
]


@pairwise(
    kind__cross=CALLS,
    feature_map__masked=[*product(["cosine", "exp", "elu"], [True, False])],
    bias=[True, False],
)
def test_layer_is_the_reference(
    kind, cross, feature_map, masked, bias, make_layer, make_rows, make_mask, gradients, run
):
    layer = make_layer(kind, feature_map=feature_map, bias=bias, seed=4)
    x = make_rows(2, 7, 6)
    y = make_rows(2, 4, 6, seed=9) if cross else None
    ignore = make_mask(2, 4 if cross else 7, keep=2) if masked else None
    assert not masked or ignore.any(-1).all()
    probe = make_rows(2, 7, 6, seed=5)
    check(layer, x, y, ignore, probe, gradients, run, passes=(True, False))


@pytest.mark.parametrize("length", [1, 2, 4, 5, 11])
@pytest.mark.parametrize("kind", ["data-sample", "data-mean"])
def test_fewer_and_more_positions_than_anchors(kind, length, make_layer, make_rows, gradients, run):
    layer = make_layer(kind, seed=6)
    x = make_rows(1, length, 6, seed=length)
    check(layer, x, None, None, make_rows(1, length, 6, seed=5), gradients, run)


@pytest.mark.parametrize("anchors", [1, 2, 3, 9])
@pytest.mark.parametrize("kind", ["data-sample", "data-mean"])
def test_any_number_of_anchors(kind, anchors, make_layer, make_rows, make_mask, gradients, run):
    layer = make_layer(kind, anchors=anchors, seed=8)
    x, ignore = make_rows(2, 6, 6), make_mask(2, 6)
    check(layer, x, None, ignore, make_rows(2, 6, 6, seed=5), gradients, run)


def test_anchor_positions_are_numpys(make_layer, make_rows):
    """Through the layer: only anchors move W_e|X, and they stand where numpy rounds to."""
    for n in range(1, 14):
        layer = make_layer("data-sample", anchors=n, bias=False)
        for length in range(1, 25):
            x = make_rows(1, length, 6, seed=length)
            f = layer.ksvd_problem(x).f[0].transpose(0, 1).flatten(1)  # (n, d)
            exact = np.linspace(0, length - 1, n)
            certain = np.abs(exact % 1 - 0.5) > 1e-9  # numpy's own rounding decides ties
            assert_close(f[certain], x[0, np.round(exact).astype(int)][certain], rtol=0, atol=0)
            assert_close(f, sample_rows(x[0], n), rtol=0, atol=0)


@pytest.mark.parametrize("most", [1, 5, 12])
@pytest.mark.parametrize("kind", ["data-sample", "data-mean", "free", "tied", "free-causal"])
def test_in_tiles(kind, most, make_layer, make_rows, make_mask, gradients, run, monkeypatch):
    """At most `most` positions a tile: sequences and batches are cut, evenly or not."""
    layer = make_layer(kind, seed=most)
    channels = 2 * layer.embed_dim + 2 * layer.num_heads * layer.rank
    monkeypatch.setattr("primal_attention.kernels.tiles.TILE", most * channels)
    for length in (1, 7):
        x, ignore = make_rows(3, length, 6, seed=length), make_mask(3, length)
        probe = make_rows(3, length, 6, seed=5)
        check(layer, x, None, ignore, probe, gradients, run)
        with torch.no_grad():  # the pass that keeps nothing
            found = layer.eval()(x, key_padding_mask=ignore)[0]
        assert_close(found, reference(layer, x, None, ignore)[0], **EXACT)


@pytest.mark.parametrize(("most", "length"), [(1, 5), (4, 64), (13, 13), (13, 101), (33, 64)])
@pytest.mark.parametrize("kind", ["data-sample", "free", "tied"])
def test_tiles_change_nothing(kind, most, length, make_layer, make_rows, run, monkeypatch):
    """Longer sequences, against the plain operations."""
    layer = make_layer(kind, seed=most, dropout=0.0)
    x = make_rows(2, length, 6, seed=length)
    expected = run(layer, x, fast=False)
    channels = 2 * layer.embed_dim + 2 * layer.num_heads * layer.rank
    monkeypatch.setattr("primal_attention.kernels.tiles.TILE", most * channels + 1)
    found = run(layer, x, fast=True)
    for a, b in zip(found[:2], expected[:2], strict=True):
        assert_close(a, b, **EXACT)
    for name, gradient in expected[2].items():
        scale = gradient.abs().max().item()
        assert_close(found[2][name], gradient, rtol=1e-10, atol=1e-12 * max(scale, 1.0))


def test_causal_across_many_chunks(make_layer, make_rows, make_mask, gradients, run):
    for kind in ("free-causal", "tied-causal"):
        for feature_map in ("cosine", "exp", "elu"):
            layer = make_layer(kind, feature_map=feature_map, seed=3)
            x, ignore = make_rows(1, 135, 6), make_mask(1, 135)
            out, loss = reference(layer, x, None, ignore)
            found = run(layer, x, None, ignore)
            assert_close(found[0], out.detach(), **EXACT)
            assert_close(found[1], loss.detach(), **EXACT)


@pytest.mark.parametrize("positions", ["mean", "sum"])
def test_reduction_over_layers(positions, make_layer, make_rows, make_mask):
    first, second = make_layer("data-sample", seed=1), make_layer("tied", seed=2)
    model = nn.ModuleList([first, second]).train()
    x, ignore = make_rows(2, 6, 6), make_mask(2, 6)
    for layer in model:
        layer(x, key_padding_mask=ignore)
    losses = [reference(layer, x, None, ignore, positions)[1] for layer in model]
    total = ksvd_loss(model, "sum", positions=positions)
    assert_close(total, losses[0] + losses[1], **EXACT)
    mean = ksvd_loss(model, "mean", positions=positions)
    assert_close(mean, (losses[0] + losses[1]) / 2, **EXACT)


@pytest.mark.parametrize("kind", ["data-sample", "free", "tied", "tied-causal"])
def test_layouts(kind, make_layer, make_rows, make_mask):
    """(N, B, d), one sequence (N, d), strided input, a float mask: the same numbers."""
    layer = make_layer(kind).eval()
    x, ignore = make_rows(3, 5, 6), make_mask(3, 5)
    expected, _ = reference(layer, x, None, ignore)
    layer.batch_first = False
    found, _ = layer(x.transpose(0, 1), key_padding_mask=ignore)
    assert_close(found.transpose(0, 1), expected, **EXACT)
    layer.batch_first = True
    strided = torch.stack([x, x], dim=-1)[..., 0]
    assert not strided.is_contiguous()
    assert_close(layer(strided, key_padding_mask=ignore)[0], expected, **EXACT)
    as_float = torch.zeros(3, 5).masked_fill(ignore, -torch.inf)
    assert_close(layer(x, key_padding_mask=as_float)[0], expected, **EXACT)
    for b in range(3):
        assert_close(layer(x[b], key_padding_mask=ignore[b])[0], expected[b], **EXACT)


@pytest.mark.parametrize("kind", ["data-sample", "data-mean", "free", "tied", "free-causal"])
def test_mask_with_any_strides(kind, make_layer, make_rows, make_mask, run):
    """A transposed mask and an expanded one are as good as a contiguous one."""
    layer = make_layer(kind)
    x, ignore = make_rows(3, 5, 6), make_mask(3, 5)
    expected = run(layer, x, None, ignore)
    transposed = ignore.t().contiguous().t()
    assert not transposed.is_contiguous()
    found = run(layer, x, None, transposed)
    assert_close(found[0], expected[0], **EXACT)
    assert_close(found[2]["input"], expected[2]["input"], **EXACT)
    expanded = ignore[:1].expand(3, 5)
    assert_close(
        run(layer, x, None, expanded)[0], run(layer, x, None, expanded.contiguous())[0], **EXACT
    )
