"""The compiled kernels against the plain operations in float64, forward and backward."""

import copy

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

import primal_attention as pa
from primal_attention.bench.measure import peak_above_start
from primal_attention.kernels.native import library, ops
from primal_attention.theory.features import Elu
from primal_attention.theory.squares import plain_sum_of_squares

pytestmark = pytest.mark.skipif(library.kernels() is None, reason=library.state())


KINDS = {
    "tied": {"weights": "tied", "feature_map": "cosine"},
    "tied-elu": {"weights": "tied", "feature_map": 1},
    "tied-elu-squared": {"weights": "tied", "feature_map": 2},
    "tied-causal": {"weights": "tied", "causal": True, "feature_map": "cosine"},
    "tied-elu-squared-causal": {"weights": "tied", "causal": True, "feature_map": 2},
    "free": {"weights": "free"},
    "free-causal": {"weights": "free", "causal": True},
    "data": {"weights": "data"},
    "data-mean": {"weights": "data", "anchor_rule": "mean"},
}
kinds = pytest.mark.parametrize("kind", KINDS)


def make(kind, width=12, heads=2, rank=3, dtype=torch.float32, seed=0, **options):
    torch.manual_seed(seed)
    given = {**KINDS[kind], **options}
    if isinstance(given.get("feature_map"), int):
        given["feature_map"] = Elu(width // heads, heads, power=given["feature_map"])
    if given["weights"] == "data":
        given["anchors"] = 5
    layer = pa.PrimalAttention(width, heads, rank=rank, dtype=dtype, **given)
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(std=0.3)
    return layer


def plain(layer):
    """The same layer in float64, by the plain operations."""
    options = {"causal": layer.causal, "bias": layer.in_proj_bias is not None}
    if layer.anchors:
        options |= {"anchors": layer.anchors, "anchor_rule": layer.anchor_rule}
    twin = pa.PrimalAttention(
        layer.embed_dim, layer.num_heads, rank=layer.rank, weights=layer.weights,
        feature_map=copy.deepcopy(layer.feature_map).double(), dtype=torch.float64, **options,
    )  # fmt: skip
    twin.load_state_dict(layer.state_dict())
    twin.fast = False
    return twin


def run(layer, x, ignore=None):
    """Output, loss and all gradients."""
    x = x.to(layer.in_proj_weight.dtype).detach().requires_grad_()
    out, _ = layer(x, key_padding_mask=ignore)
    loss = pa.ksvd_loss(layer)
    weight = torch.linspace(0.1, 1, out.numel(), dtype=out.dtype).view_as(out)
    gradients = torch.autograd.grad((out * weight).sum() + loss, [x, *layer.parameters()])
    names = ["out", "loss", "x", *(name for name, _ in layer.named_parameters())]
    return dict(zip(names, [out.detach(), loss.detach(), *gradients], strict=True))


def assert_same(found, expected, tolerance=2e-5, least=1e-5):
    for name, value in expected.items():
        size = value.abs().max().item()
        assert_close(
            found[name].double(), value, rtol=0, atol=tolerance * size + least,
            msg=lambda text, name=name: f"{name}: {text}",
        )  # fmt: skip


def cancellation(twin, x, ignore=None):
    """How many times larger the parts of J are than J: their rounding errors grow so in it."""
    with torch.no_grad():
        twin(x.double(), key_padding_mask=ignore)
    (entry,) = twin.ledger.read()
    twin.ledger.release()
    apart = entry._replace(terms=entry.terms.abs() * torch.tensor([1.0, 1, -1]).view(3, 1, 1))
    parts, whole = (plain_sum_of_squares([made], "mean", 1.0).item() for made in (apart, entry))
    return (parts / whole) ** 0.5 if whole else 1.0


def compare(layer, x, ignore=None, least=1e-5):
    """With the plain operations in float64; returns what the layer gave."""
    twin = plain(layer)
    expected, found = run(twin, x, ignore), run(layer, x, ignore)
    times = cancellation(twin, x, ignore)
    loss = expected.pop("loss")
    assert_close(found.pop("loss").double(), loss, rtol=1e-4 + 4e-6 * times, atol=least)
    own = copy.deepcopy(layer)  # the plain operations in single precision lose as much to it
    own.fast = False
    single = run(own, x, ignore)
    off = max(
        (single[name].double() - value).abs().max().item() / max(value.abs().max().item(), least)
        for name, value in expected.items()
    )
    assert_same(found, expected, max(1e-4 + 2e-6 * times, off if times > 1 else 0), least)
    return found


@pytest.fixture
def calls(monkeypatch):
    """How often the kernels ran."""
    seen, attend = [], ops.attend

    def watched(*given):
        seen.append(given)
        return attend(*given)

    monkeypatch.setattr(ops, "attend", watched)
    return seen


@kinds
@settings(max_examples=12, deadline=None)
@given(
    length=st.sampled_from([1, 2, 15, 16, 17, 31, 33, 95, 96, 97, 193]),
    batch=st.integers(1, 3),
    head_dim=st.integers(1, 19),
    heads=st.integers(1, 3),
    rank=st.integers(1, 14),
    bias=st.booleans(),
    masked=st.booleans(),
    seed=st.integers(0, 1000),
)
@example(length=97, batch=2, head_dim=17, heads=2, rank=13, bias=True, masked=True, seed=0)
def test_equals_the_plain_operations(
    kind, length, batch, head_dim, heads, rank, bias, masked, seed
):
    layer = make(kind, heads * head_dim, heads, rank, seed=seed, bias=bias)
    x = torch.randn(batch, length, heads * head_dim)
    ignore = None
    if masked:
        ignore = torch.rand(batch, length) < 0.4
        ignore[0] = True  # nothing at all
        x[ignore] = torch.nan
    # the cosine of one channel is a sign: its gradient, zero, is rounding errors divided by |z|
    found = compare(layer, x, ignore, least=1e-3 if head_dim == 1 else 1e-5)
    if ignore is not None:
        assert not found["out"][ignore].any()
        assert not found["x"][ignore].any()


def folds(layer, x):
    """Whether the kernels make one matrix of W_c and the output projection for these shapes."""
    found = library.kernels()
    shape = *x.shape, layer.num_heads, layer.embed_dim // layer.num_heads, layer.rank
    call = library.pack((*shape, 0, ops.COSINE, 0, 0, torch.get_num_threads()), 1.0, ())
    return bool(found.library.primal_folds(call))


@kinds
@settings(max_examples=10, deadline=None)
@given(
    head_dim=st.integers(2, 19),
    heads=st.integers(1, 4),
    rank=st.integers(1, 16),
    batch=st.integers(1, 3),
    bias=st.booleans(),
    seed=st.integers(0, 1000),
)
@example(head_dim=16, heads=4, rank=8, batch=1, bias=True, seed=0)
@example(head_dim=5, heads=4, rank=16, batch=2, bias=False, seed=0)  # folding never pays
@example(head_dim=10, heads=1, rank=16, batch=1, bias=True, seed=368)  # J cancels 25 times
def test_few_rows_and_many(kind, head_dim, heads, rank, batch, bias, seed):
    """On both sides of the length from which one matrix for W_c and the output projection takes
    fewer products: the cheaper way is taken, and either gives what the plain operations give."""
    width, scores = heads * head_dim, 2 * rank
    layer = make(kind, width, heads, rank, seed=seed, bias=bias)
    once = scores * head_dim * width
    for_a_row = scores * head_dim + head_dim * width - scores * width  # what folding saves
    first = once // (for_a_row * batch) + 1 if for_a_row > 0 else 41
    for length in {max(1, min(first, 200) - 1), min(first, 200)}:
        x = torch.randn(batch, length, width)
        assert folds(layer, x) == (once < batch * length * for_a_row)
        compare(layer, x)


@kinds
def test_serves_training_and_inference(kind, calls):
    layer, x = make(kind), torch.randn(2, 300, 12)
    expected = run(plain(layer), x)
    assert not calls
    assert_same(run(layer, x), expected)
    with torch.no_grad():
        assert_close(layer.eval()(x)[0].double(), expected["out"], rtol=0, atol=1e-5)
    assert len(calls) == 2


@kinds
def test_the_loss_from_the_terms(kind):
    """By sums over positions, and of two forwards: not what the node has squared already."""
    layer, x = make(kind), torch.randn(2, 40, 12)
    found = []
    for own in (layer, plain(layer)):
        for _ in range(2):
            own(x.to(own.in_proj_weight.dtype))
        mean = pa.ksvd_loss(own)
        total = pa.ksvd_loss(own, positions="sum")
        losses = mean + 1e-3 * total
        found.append(
            [losses, *torch.autograd.grad(losses, list(own.parameters()), allow_unused=True)]
        )
    for ours, theirs in zip(*found, strict=True):
        if theirs is not None:
            size = theirs.abs().max().item()
            assert_close(ours.double(), theirs, rtol=0, atol=1e-4 * size + 1e-5)


@pytest.mark.parametrize(
    ("kind", "width", "rank", "length"),
    [
        *((kind, 48, 12, 700) for kind in KINDS),
        *((kind, 256, 40, length) for kind in ("tied", "data") for length in (30, 130)),
    ],
)
def test_threads_do_not_change_a_bit(kind, width, rank, length):
    """Also in wide layers, whose maps of the weights are made by all threads, with few rows too."""
    layer, x = make(kind, width, 2, rank), torch.randn(3, length, width)
    ignore = torch.rand(3, length) < 0.2
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(run(layer, x, ignore))
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        for name, value in found[0].items():
            assert torch.equal(other[name], value), name


@pytest.mark.parametrize(("kind", "sizes"), [("free", 1.5), ("data", 1.5), ("tied", 4.0)])
def test_nothing_is_kept_without_gradients(kind, sizes):
    """Peak memory in sizes of the output; what a way back needs would be 4 more. Tied weights have
    features of all positions until their sums are complete."""
    layer, x = make(kind, 64, 2, 32), torch.randn(1, 40_000, 64)
    with torch.no_grad():
        layer(x)
        needed = peak_above_start(lambda: layer(x))
    assert needed < sizes * x.nbytes / 2**20


@kinds
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("length", [1, 40, 97])
def test_rows_without_direction(kind, bias, length):
    """Zero rows, with and without biases: finite, and what the plain operations give."""
    layer = make(kind, bias=bias)
    x = torch.randn(2, length, 12)
    x[:, ::3] = 0
    found = compare(layer, x)
    assert all(value.isfinite().all() for value in found.values())


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "causal" in kind])
def test_a_later_nan_does_not_reach_earlier_rows(kind):
    layer, x = make(kind).eval(), torch.randn(1, 90, 12)
    expected = plain(layer).eval()(x.double())[0]
    x[:, 50] = torch.nan
    out = layer(x)[0]
    assert_close(out[:, :50].double(), expected[:, :50], rtol=0, atol=1e-5)
    assert out[:, 50:].isnan().all()


def test_features_far_below_one():
    """Sharp positive features underflow in float32 long before their ratio means nothing."""
    layer = make("tied-elu-squared").eval()
    with torch.no_grad():
        layer.in_proj_bias.fill_(-12.0)
    x = torch.randn(2, 50, 12)
    assert_close(layer(x)[0].double(), plain(layer).eval()(x.double())[0], rtol=0, atol=1e-5)


@kinds
def test_dropout_is_drawn_from_the_generator(kind, calls):
    layer, x = make(kind, dropout=0.5), torch.randn(2, 60, 12)
    torch.manual_seed(5)
    first = layer(x)[0]
    second = layer(x)[0]
    torch.manual_seed(5)
    assert torch.equal(layer(x)[0], first)
    assert not torch.equal(first, second)
    assert len(calls) == 3
    layer.dropout = 0.0
    with torch.no_grad():
        torch.manual_seed(0)
        kept = layer(x)[0]
        layer.dropout = 0.5
        mean = torch.zeros_like(kept)
        for _ in range(400):
            mean += layer(x)[0] / 400
            layer.ledger.release()
    assert (mean - kept).norm() < 0.2 * (kept - layer.out_proj.bias).norm()


@kinds
@pytest.mark.parametrize("length", [5, 60])
def test_gradient_with_dropout(kind, length):
    """Along a direction, by differences with the same draw; with few rows and with many."""
    layer, x = make(kind, dropout=0.4), torch.randn(2, length, 12)
    assert folds(layer, x) == (length == 60)
    direction = torch.randn_like(layer.in_proj_weight)

    def value(step):
        torch.manual_seed(3)
        with torch.no_grad():
            layer.in_proj_weight += step * direction
            out = layer(x)[0].double().square().sum()
            layer.in_proj_weight -= step * direction
        return out

    torch.manual_seed(3)
    (gradient,) = torch.autograd.grad(layer(x)[0].square().sum(), [layer.in_proj_weight])
    found = (gradient * direction).sum().item()
    expected = ((value(1e-3) - value(-1e-3)) / 2e-3).item()
    assert found == pytest.approx(expected, rel=0.005, abs=0.005)


@kinds
@pytest.mark.parametrize("length", [5, 100])
def test_bfloat16(kind, length, calls):
    """What the plain operations give in float64 for the rounded numbers; with few rows and many."""
    layer, x = make(kind).to(torch.bfloat16), torch.randn(2, length, 12).bfloat16()
    assert folds(layer, x) == (length == 100)
    expected, found = run(plain(layer), x), run(layer, x)
    assert calls
    assert found["out"].dtype == torch.bfloat16
    assert_same(found, expected, 0.01)


def test_a_stream_of_tied_weights_continues(calls):
    for kind in ("tied-causal", "tied-elu-squared-causal"):
        layer, x = make(kind).eval(), torch.randn(2, 700, 12)
        with torch.no_grad():
            whole, end = layer.prefill(x)
            first, state = layer.prefill(x[:, :333])
            second, state = layer.prefill(x[:, 333:], state=state)
        assert_close(torch.cat([first, second], 1), whole, rtol=1e-4, atol=1e-5)
        assert_close(state.sums, end.sums, rtol=1e-4, atol=1e-3)
        assert torch.equal(state.seen, end.seen)
        expected, wide = plain(layer).eval().prefill(x.double())
        assert_close(whole.double(), expected, rtol=1e-4, atol=1e-5)
        assert_close(state.sums.double(), wide.sums, rtol=1e-4, atol=1e-3)
    assert len(calls) == 6


def test_backward_twice_over_one_graph():
    layer, x = make("tied-causal"), torch.randn(1, 50, 12, requires_grad=True)
    out = layer(x)[0].sum()
    first = torch.autograd.grad(out, [x], retain_graph=True)[0]
    assert torch.equal(torch.autograd.grad(out, [x])[0], first)


def test_second_derivatives_are_refused():
    layer, x = make("tied"), torch.randn(1, 50, 12, requires_grad=True)
    with pytest.raises(RuntimeError, match="no derivative itself"):
        torch.autograd.grad(layer(x)[0].sum(), [x], create_graph=True)


@kinds
def test_frozen_inputs_and_parameters(kind):
    layer, x = make(kind), torch.randn(1, 50, 12)
    out = layer(x)[0]
    out.sum().backward()
    expected = layer.in_proj_weight.grad.clone()
    layer.zero_grad()
    layer.out_proj.weight.requires_grad_(False)
    layer(x)[0].sum().backward()
    assert layer.out_proj.weight.grad is None
    assert torch.equal(layer.in_proj_weight.grad, expected)


def test_the_default_type_does_not_matter():
    """Memory that the kernels write is float32 although torch's default is another type, as in
    training with precision bf16-true; in a smaller one they would write past its end."""
    results = []
    for dtype in (torch.float32, torch.bfloat16):
        layer = make("tied-elu", dtype=torch.bfloat16)
        x = torch.randn(2, 70, 12).bfloat16().requires_grad_()
        torch.set_default_dtype(dtype)
        try:
            (layer(x)[0].square().sum() + pa.ksvd_loss(layer)).backward()
        finally:
            torch.set_default_dtype(torch.float32)
        results.append([x.grad, *(p.grad for p in layer.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
