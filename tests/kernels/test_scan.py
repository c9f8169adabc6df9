"""The causal scan against sums over the whole past."""

import pytest
import torch
from torch.testing import assert_close

from primal_attention.kernels import scan
from primal_attention.kernels.scan import Sums, causal_scan

EXACT = {"rtol": 1e-9, "atol": 1e-9}
SHAPE = (2, 3, 4, 5)  # B, h, m, c


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def inputs(length):
    batch, heads, m, c = SHAPE
    q, k = (draw(batch, heads, length, m, seed=i).abs() for i in range(2))
    return q, k, draw(batch, heads, length, c, seed=2)


def start(*, weighted=False):
    return Sums.zero(torch.zeros(1, dtype=torch.float64), SHAPE, weighted=weighted)


def logarithms(length):
    return 300 * draw(*SHAPE[:2], length, seed=5)  # exp of these overflows and underflows


def written_out(q, k, v, logs=None):
    kernel = q @ k.mT
    if logs is not None:
        peak = logs.cummax(-1).values
        kernel = kernel * (logs.unsqueeze(-2) - peak.unsqueeze(-1)).clamp(max=0).exp()
    return kernel.tril() @ v, kernel.tril().sum(-1)


@pytest.mark.parametrize("length", [1, 2, 63, 64, 65, 130])
@pytest.mark.parametrize("weighted", [False, True])
def test_outputs_and_gradients(length, weighted):
    q, k, v = (t.requires_grad_() for t in inputs(length))
    logs = logarithms(length) if weighted else None
    out, rows, _ = causal_scan(q, k, v, start(weighted=weighted), logs)
    expected = written_out(q, k, v, logs)
    assert_close((out, rows), expected, **EXACT)
    g = [draw(*t.shape, seed=8) for t in expected]
    ours = torch.autograd.grad([out, rows], [q, k, v], g)
    for mine, right in zip(ours, torch.autograd.grad(expected, [q, k, v], g), strict=True):
        assert_close(mine, right, **EXACT)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("cut", [1, 64, 100, 129])
def test_goes_on_from_a_state(cut, weighted):
    q, k, v = inputs(130)
    logs = logarithms(130) if weighted else None
    state, outs, sums = start(weighted=weighted), [], []
    for part in (slice(0, cut), slice(cut, None)):
        pieces = (t[:, :, part] for t in (q, k, v))
        piece_logs = None if logs is None else logs[..., part]
        out, rows, state = causal_scan(*pieces, state, piece_logs)
        outs.append(out)
        sums.append(rows)
    expected = written_out(q, k, v, logs)
    assert_close((torch.cat(outs, 2), torch.cat(sums, 2)), expected, **EXACT)
    weights = 1.0 if logs is None else (logs - logs.amax(-1, keepdim=True)).exp().unsqueeze(-1)
    assert_close(state.values, (k * weights).mT @ v, **EXACT)
    assert_close(state.keys, (k * weights).sum(2), **EXACT)
    if logs is not None:
        assert_close(state.peak, logs.amax(-1), **EXACT)


def test_gradients_reach_the_state():
    q, k, v = inputs(70)
    before = Sums(draw(*SHAPE, seed=6).requires_grad_(), draw(*SHAPE[:3], seed=7).requires_grad_())
    out, rows, after = causal_scan(q, k, v, before)
    total = out.sum() + rows.sum() + after.values.sum() + after.keys.sum()
    ours = torch.autograd.grad(total, before[:2])
    queries = q.sum(2)
    assert_close(ours[0], (queries + 1).unsqueeze(-1).expand(SHAPE), **EXACT)
    assert_close(ours[1], queries + 1, **EXACT)


def test_keys_without_any_weight():
    q, k, v = inputs(9)
    logs = draw(*SHAPE[:2], 9, seed=5)
    logs[:, :, [0, 1, 4]] = -torch.inf
    out, rows, state = causal_scan(q, k, v, start(weighted=True), logs)
    assert (out[:, :, :2] == 0).all()
    assert (rows[:, :, :2] == 0).all()
    kept = [2, 3, 5, 6, 7, 8]
    expected = causal_scan(
        *(t[:, :, kept] for t in (q, k, v)), start(weighted=True), logs[..., kept]
    )
    assert_close(out[:, :, kept], expected[0], **EXACT)
    assert_close(state.values, expected[2].values, **EXACT)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_later_nan_does_not_reach_back(weighted):
    q, k, v = inputs(130)
    logs = logarithms(130) if weighted else None
    clean = causal_scan(q, k, v, start(weighted=weighted), logs)
    for t in (q, k, v):
        t[:, :, 70] = torch.nan
    out, rows, _ = causal_scan(q, k, v, start(weighted=weighted), logs)
    assert torch.equal(out[:, :, :70], clean[0][:, :, :70])
    assert torch.equal(rows[:, :, :70], clean[1][:, :, :70])
    assert out[:, :, 70:].isnan().all()


def test_narrow_inputs_are_summed_in_float32():
    q, k, v = (torch.ones(1, 1, 600, 1, dtype=torch.bfloat16) for _ in range(3))
    before = Sums.zero(q, (1, 1, 1, 1))
    out, _, after = causal_scan(q, k, v, before)
    assert out.dtype == torch.bfloat16
    assert after.values.dtype == torch.float32
    assert after.values.item() == 600  # bfloat16 stops at 256


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True])
def test_compiled(weighted):
    torch._dynamo.reset()
    q, k, v = inputs(70)
    logs = logarithms(70) if weighted else None
    compiled = torch.compile(causal_scan, fullgraph=True, backend="eager")
    ours, right = (f(q, k, v, start(weighted=weighted), logs) for f in (compiled, causal_scan))
    assert_close(ours[:2], right[:2], **EXACT)
    assert_close(ours[2].values, right[2].values, **EXACT)


@pytest.mark.parametrize("length", [1, 2, 64, 65, 200])
def test_as_in_a_graph_of_any_length(length, monkeypatch):
    """Without cummax, and without a loop over the chunks."""
    q, k, v = (t.requires_grad_() for t in inputs(length + 7))
    logs = logarithms(length + 7)
    logs[0, 0, :9] = -torch.inf
    first, rest = slice(0, 7), slice(7, None)
    parts = (t[:, :, first] for t in (q, k, v))
    _, _, before = causal_scan(*parts, start(weighted=True), logs[..., first])

    def scanned(keys, values):
        out, rows, after = causal_scan(
            *(t[:, :, rest] for t in (q, keys, values)), before, logs[..., rest]
        )
        return out, rows, *after

    expected = scanned(k, v)
    monkeypatch.setattr(scan, "is_exporting", lambda: True)
    monkeypatch.setattr(scan, "_carry_rescaled", scan._carry_rescaled_at_once)
    found = scanned(k, v)
    assert_close(found, expected, **EXACT)
    g = [draw(*t.shape, seed=8) for t in expected[:4]]
    ours, right = (
        torch.autograd.grad(r[:4], [q, k, v], g, retain_graph=True) for r in (found, expected)
    )
    assert_close(ours, right, **EXACT)
    poisoned = [t.detach().clone() for t in (k, v)]
    for rows in (*poisoned, logs.unsqueeze(-1)):
        rows[:, :, -1] = torch.nan
    out = scanned(*poisoned)[0]
    assert torch.equal(out[:, :, :-1], found[0][:, :, :-1])
    assert out[:, :, -1].isnan().all()
