"""Factored attentions against the matrices they stand for, written out from their papers."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

from primal_attention import make_attention
from primal_attention.attention.factored import inner_products, inverse, weighted_sums
from primal_attention.theory.factors import DenseKernel, KernelFactors

from .draws import draw

EXACT = {"rtol": 1e-9, "atol": 1e-9}
LENGTH, WIDTH, HEADS, MAX_LENGTH = 11, 12, 3, 90
HOLES = torch.tensor(  # holes, padding first, padding last, one valid position, none
    [
        [0, 1, 0, 0, 1, 1, 0, 0, 0, 1, 0],
        [1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1],
        [1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1],
        [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
    ],
    dtype=torch.bool,
)


def past(scores: Tensor, causal: bool) -> Tensor:
    return scores.tril() if causal else scores


def by_rows(scores: Tensor, causal: bool) -> Tensor:
    scores = past(scores, causal)
    return scores / scores.sum(-1, keepdim=True)


def linear(layer, q: Tensor, k: Tensor) -> Tensor:
    return by_rows((F.elu(q) + 1) @ (F.elu(k) + 1).mT, layer.causal)


def performer(layer, q: Tensor, k: Tensor) -> Tensor:
    q, k = (x / x.shape[-1] ** 0.25 for x in (q, k))
    q, k = ((x @ layer.projection.mT - x.square().sum(-1, keepdim=True) / 2).exp() for x in (q, k))
    return by_rows(q @ k.mT, layer.causal)


def cosformer(layer, q: Tensor, k: Tensor) -> Tensor:
    n, m = q.shape[2], k.shape[2]
    distance = torch.arange(n, dtype=q.dtype)[:, None] - torch.arange(m, dtype=q.dtype)
    cosine = torch.cos(math.pi / 2 * distance / (layer.max_length or max(n, m)))
    scores = past((F.relu(q) @ F.relu(k).mT) * cosine, layer.causal)
    sums = scores.sum(-1, keepdim=True)
    return torch.where(sums == 0, 0.0, scores / torch.where(sums == 0, 1.0, sums))


def flow(layer, q: Tensor, k: Tensor) -> Tensor:
    causal, capacity = layer.causal, q.sigmoid() @ k.sigmoid().mT  # (B, h, N, M)
    n, m = capacity.shape[-2:]
    into, out_of = past(capacity, causal).sum(-1), past(capacity.mT, causal).sum(-1)
    if causal:
        steps = torch.arange(1, n + 1)
        sinks = (capacity * (steps / out_of).unsqueeze(-2)).tril().sum(-1) / steps
        sources = (capacity.mT * (steps / into).unsqueeze(-2)).tril().sum(-1) / steps
        weights = sources.clamp(-1, 1).exp()
        competition = weights / weights.cumsum(-1) * steps
        allocation = sinks.sigmoid()
    else:
        sinks = (capacity / out_of.unsqueeze(-2)).sum(-1)
        sources = (capacity / into.unsqueeze(-1)).sum(-2)
        competition = sources.clamp(-1, 1).softmax(-1) * m
        allocation = (sinks * n / m).sigmoid()
    flows = past(capacity, causal) * competition.unsqueeze(-2)
    return flows * (allocation / into).unsqueeze(-1)


MECHANISMS = {
    "linear": (linear, {}),
    "performer": (performer, {"features": 7}),
    "cosformer": (cosformer, {}),
    "cosformer, fixed": (cosformer, {"max_length": MAX_LENGTH}),
    "flow": (flow, {}),
}
CAUSAL = [name for name in MECHANISMS if name != "cosformer"]
ORDERS = pytest.mark.parametrize("folded", [True, False], ids=["folded", "plain"])
every = pytest.mark.parametrize("name", MECHANISMS)


def make(name: str, **options):
    torch.manual_seed(3)
    options = {"dtype": torch.float64} | MECHANISMS[name][1] | options
    layer = make_attention(name.split(",")[0], WIDTH, HEADS, **options)
    if layer.in_proj_bias is not None:
        torch.nn.init.normal_(layer.in_proj_bias, std=0.3)
        torch.nn.init.normal_(layer.out_proj.bias, std=0.3)
    return layer


def alone(layer, matrix, x: Tensor, y: Tensor) -> Tensor:
    """One call without padding: the layer's projections around the matrix."""
    biases = [None] * 3 if layer.in_proj_bias is None else layer.in_proj_bias.chunk(3)
    weights = layer.in_proj_weight.chunk(3)
    rows = (F.linear(r, w, b) for r, w, b in zip((x, y, y), weights, biases, strict=True))
    q, k, v = (r.unflatten(-1, (HEADS, -1)).transpose(1, 2) for r in rows)
    return layer.out_proj((matrix(layer, q, k) @ v).transpose(1, 2).flatten(2))


def expect_written_out(name: str, layer, x: Tensor, y: Tensor | None, ignore: Tensor | None):
    """Output and gradients are those of every sequence by itself, without what is ignored."""
    leaves = [t.requires_grad_() for t in (x, y) if t is not None] + list(layer.parameters())
    out, _ = layer(x, y, key_padding_mask=ignore)
    context, rows = x if y is None else y, []
    for i in range(len(x)):
        keys = torch.arange(context.shape[1])
        keys = keys if ignore is None else keys[~ignore[i]]
        queries = keys if y is None else torch.arange(x.shape[1])
        row = torch.zeros_like(out[i])
        if len(keys):
            right = alone(
                layer, MECHANISMS[name][0], x[i : i + 1, queries], context[i : i + 1, keys]
            )
            row = row.index_put((queries,), right[0])
        rows.append(row)
    expected = torch.stack(rows)
    assert_close(out, expected, **EXACT)
    g = draw(*out.shape, seed=9)
    grads = (torch.autograd.grad(t, leaves, g) for t in (out, expected))
    for ours, right in zip(*grads, strict=True):
        assert_close(ours, right, **EXACT)


@ORDERS
@every
@pytest.mark.parametrize(
    ("ignore", "bias"),
    [(None, True), (HOLES, False), (HOLES, True)],
    ids=["whole", "without bias", "holes"],
)
def test_self_attention(name, folded, ignore, bias):
    layer = make(name, bias=bias)
    layer._folds = lambda call: folded
    expect_written_out(name, layer, draw(5, LENGTH, WIDTH), None, ignore)


@ORDERS
@every
@pytest.mark.parametrize("length", [6, LENGTH])  # as long as the context: still no self-attention
@pytest.mark.parametrize("ignore", [None, HOLES], ids=["whole", "holes"])
def test_cross_attention(name, folded, length, ignore):
    layer = make(name)
    layer._folds = lambda call: folded
    x, y = draw(5, length, WIDTH), draw(5, LENGTH, WIDTH, seed=1)
    expect_written_out(name, layer, x, y, ignore)


@ORDERS
@every
def test_values_of_their_own(name, folded):
    layer, (x, y, z) = make(name), (draw(2, 5, WIDTH, seed=i) for i in range(3))
    layer._folds = lambda call: folded
    weights = layer(x, y, z, need_weights=True, average_attn_weights=False)[1]
    w_v, b_v = layer.in_proj_weight.chunk(3)[2], layer.in_proj_bias.chunk(3)[2]
    v = F.linear(z, w_v, b_v).unflatten(-1, (HEADS, -1)).transpose(1, 2)
    expected = layer.out_proj((weights @ v).transpose(1, 2).flatten(2))
    assert_close(layer(x, y, z)[0], expected, **EXACT)


@pytest.mark.parametrize("name", CAUSAL)
@pytest.mark.parametrize("length", [1, 64, 77])
def test_causal(name, length):
    expect_written_out(name, make(name, causal=True), draw(2, length, WIDTH), None, None)


@pytest.mark.parametrize("name", CAUSAL)
def test_causal_with_holes(name):
    layer = make(name, causal=True)
    expect_written_out(name, layer, draw(5, LENGTH, WIDTH), None, HOLES)
    ignore = draw(2, 80, seed=4) > 0.5
    expect_written_out(name, layer, draw(2, 80, WIDTH), None, ignore)


@every
def test_matrix_and_factors_are_the_same(name):
    layer, x = make(name), draw(5, LENGTH, WIDTH)
    _, weights = layer(x, key_padding_mask=HOLES, need_weights=True, average_attn_weights=False)
    kernel = layer.factors(x, key_padding_mask=HOLES)
    assert isinstance(kernel, KernelFactors)
    assert_close(kernel.dense(), weights, **EXACT)
    assert (weights.mT[HOLES[:, None].expand(-1, HEADS, -1)] == 0).all()
    assert (weights[HOLES[:, None].expand(-1, HEADS, -1)] == 0).all()


@pytest.mark.parametrize("name", CAUSAL)
def test_causal_matrix(name):
    layer, x = make(name, causal=True), draw(2, LENGTH, WIDTH)
    _, weights = layer(x, need_weights=True, average_attn_weights=False)
    assert torch.equal(weights, weights.tril())
    kernel = layer.factors(x)
    assert isinstance(kernel, DenseKernel)
    assert torch.equal(kernel.dense(), weights)


@pytest.mark.parametrize("name", CAUSAL)
def test_a_stream_of_another_batch_is_refused(name):
    layer = make(name, causal=True)
    with pytest.raises(ValueError, match="the state has batch size 3; expected 2"):
        layer.step(draw(2, WIDTH), layer.init_state(3))


@pytest.mark.parametrize("name", CAUSAL)
def test_the_state_does_not_grow(name):
    layer = make(name, causal=True)

    def numbers(state) -> int:
        parts = [p for p in state if p is not None]
        return sum(
            p.untyped_storage().size() if isinstance(p, Tensor) else numbers(p) for p in parts
        )

    _, short = layer.prefill(draw(2, 3, WIDTH))
    _, long = layer.prefill(draw(2, 85, WIDTH))
    assert numbers(short) == numbers(long)


@every
def test_short_sequences_are_not_folded(name):
    layer, calls = make(name), []
    layer._folded = lambda *_: calls.append(1) or torch.zeros(1, 1, WIDTH, dtype=torch.float64)
    wide = make_attention("linear", 512, 2)
    wide._folded = lambda *_: pytest.fail("folded")
    wide(torch.zeros(1, 8, 512))
    layer(draw(1, 64, WIDTH))
    assert calls == [1]


def test_products_of_all_heads():
    rows, vectors, weights = draw(2, 5, 3, 4), draw(2, 3, 4, 2, seed=1), draw(2, 5, 3, seed=2)
    expected = torch.einsum("bnhm,bhmc->bnhc", rows, vectors)
    assert_close(inner_products(rows, vectors), expected, **EXACT)
    assert_close(inner_products(rows, vectors[..., 0]), expected[..., 0], **EXACT)
    expected = torch.einsum("bnhm,bnh->bhm", rows, weights)
    assert_close(weighted_sums(rows, weights), expected, **EXACT)


def test_inverse_of_nothing_is_one():
    assert inverse(torch.tensor([0.0, 4.0])).tolist() == [1.0, 0.25]


FACTORED = ["linear", "flow", "cosformer", "performer"]
CAUSAL = [("linear", {}), ("flow", {}), ("cosformer", {"max_length": 200}), ("performer", {})]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [(name, {}) for name in FACTORED] + [(name, o | {"causal": True}) for name, o in CAUSAL],
    ids=str,
)
def test_one_graph_serves_every_batch_and_length(name, options):
    torch.manual_seed(0)
    layer = make_attention(name, 8, 2, dtype=torch.float64, **options).eval()

    def call(batch: int, length: int) -> tuple[Tensor, None, None, Tensor]:
        ignore = torch.arange(length) > torch.arange(batch).unsqueeze(-1) + 1
        return draw(batch, length, 8), None, None, ignore

    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
    shapes = {"query": sizes, "key": None, "value": None, "key_padding_mask": sizes}
    program = torch.export.export(layer, call(3, 70), dynamic_shapes=shapes).module()
    for size in ((1, 1), (5, 12), (2, 90), (1, 200)):
        assert_close(program(*call(*size))[0], layer(*call(*size))[0])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", FACTORED[:3])
def test_sums_stay_in_the_range_of_float16(name, causal):
    """At scale 10 and 500 positions the sums over them, or their gradients, are beyond 65504."""
    torch.manual_seed(0)
    options = {"max_length": 500} if name == "cosformer" else {}
    layer = make_attention(name, 32, 2, causal=causal, **options)
    x = (10 * draw(1, 500, 32)).half()
    found = []
    for dtype in (torch.float16, torch.float32):
        rows = x.to(dtype).requires_grad_()
        layer = layer.to(dtype)
        out, _ = layer(rows)
        parameters = [rows, *layer.parameters()]
        found.append(
            [out.float(), *(g.float() for g in torch.autograd.grad(out.sum(), parameters))]
        )
    for half, exact in zip(*found, strict=True):
        assert_close(half, exact, rtol=0.05, atol=0.05 * exact.abs().max().item())
