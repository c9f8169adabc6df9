"""What a layer promises at any batch, length, heads, rank, mask and dtype."""

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from primal_attention import ksvd_loss

KINDS = ["data-sample", "data-mean", "free", "tied", "free-causal", "tied-causal"]
CLOSE = {
    torch.float64: {"rtol": 1e-10, "atol": 1e-11},
    torch.float32: {"rtol": 2e-4, "atol": 2e-4},
}
quick = settings(max_examples=40, deadline=None)
sizes = st.fixed_dictionaries(
    {
        "batch": st.integers(1, 4),
        "length": st.integers(1, 9),
        "heads": st.integers(1, 3),
        "rank": st.integers(1, 5),
        "seed": st.integers(0, 1000),
        "dtype": st.sampled_from([torch.float64, torch.float64, torch.float32]),
        "feature_map": st.sampled_from(["cosine", "cosine", "exp", "elu"]),
        "fast": st.booleans(),
    }
)
kinds = st.sampled_from(KINDS)


def build(make_layer, kind, size):
    layer = make_layer(
        kind, 3 * size["heads"], size["heads"],
        rank=size["rank"], seed=size["seed"], dtype=size["dtype"],
        feature_map=size["feature_map"],
    )  # fmt: skip
    layer.fast = size["fast"]
    return layer


def draw_rows(make_rows, size, batch=None, length=None, seed=0):
    shape = (batch or size["batch"], length or size["length"], 3 * size["heads"])
    return make_rows(*shape, seed=size["seed"] + seed, dtype=size["dtype"])


def objective(layer, x, y=None, ignore=None, positions="mean"):
    layer.train()
    out, _ = layer(x, y, key_padding_mask=ignore)
    loss = ksvd_loss(layer, positions=positions)
    layer.eval()
    return out, loss


# -- padding and batches ---------------------------------------------------------------------------


@quick
@given(kind=kinds, size=sizes, junk=st.sampled_from([0.0, 1e4, torch.nan, torch.inf]))
def test_padding_changes_neither_output_nor_objective(
    kind, size, junk, make_layer, make_rows, make_mask
):
    layer = build(make_layer, kind, size)
    x = draw_rows(make_rows, size)
    ignore = make_mask(size["batch"], size["length"], seed=size["seed"])
    x[ignore] = junk
    for positions in ("mean", "sum"):
        out, loss = objective(layer, x, ignore=ignore, positions=positions)
        assert (out[ignore] == 0).all()
        losses = []
        for b in range(size["batch"]):
            alone, one = objective(layer, x[b : b + 1, ~ignore[b]], positions=positions)
            assert_close(out[b, ~ignore[b]], alone[0], **CLOSE[size["dtype"]])
            losses.append(one)
        assert_close(loss, torch.stack(losses).mean(), **CLOSE[size["dtype"]])


@quick
@given(kind=st.sampled_from(KINDS[:4]), size=sizes, context=st.integers(1, 7))
def test_padding_in_cross_attention(kind, size, context, make_layer, make_rows, make_mask):
    layer = build(make_layer, kind, size)
    x, y = draw_rows(make_rows, size), draw_rows(make_rows, size, length=context, seed=1)
    ignore = make_mask(size["batch"], context, seed=size["seed"])
    y[ignore] = torch.nan
    out, loss = objective(layer, x, y, ignore)
    losses = []
    for b in range(size["batch"]):
        alone, one = objective(layer, x[b : b + 1], y[b : b + 1, ~ignore[b]])
        assert_close(out[b], alone[0], **CLOSE[size["dtype"]])
        losses.append(one)
    assert_close(loss, torch.stack(losses).mean(), **CLOSE[size["dtype"]])


@quick
@given(kind=kinds, size=sizes)
def test_samples_do_not_see_each_other(kind, size, make_layer, make_rows):
    layer = build(make_layer, kind, size)
    x = draw_rows(make_rows, size)
    out, loss = objective(layer, x)
    losses = []
    for b in range(size["batch"]):
        alone, one = objective(layer, x[b : b + 1])
        assert_close(out[b : b + 1], alone, **CLOSE[size["dtype"]])
        losses.append(one)
    assert_close(loss, torch.stack(losses).mean(), **CLOSE[size["dtype"]])
    other = torch.cat([x[:1], torch.full_like(x[:1], torch.nan)])
    assert_close(layer(other)[0][:1], out[:1], **CLOSE[size["dtype"]])


# -- order -----------------------------------------------------------------------------------------


@quick
@given(
    kind=st.sampled_from(KINDS[4:]),
    size=sizes,
    length=st.integers(2, 140),
    at=st.integers(1, 139),
    change=st.sampled_from([3.0, torch.nan, torch.inf, -torch.inf]),
    data=st.data(),
)
def test_causality_to_the_last_bit(
    kind, size, length, at, change, data, make_layer, make_rows, make_mask
):
    assume(at < length)
    layer = build(make_layer, kind, size).eval()
    x = draw_rows(make_rows, size, length=length)
    ignore = None
    if data.draw(st.booleans()):
        ignore = make_mask(size["batch"], length, seed=size["seed"])
        ignore[:, at] = False  # where everything is masked nothing could be seen
    before = layer(x, key_padding_mask=ignore)[0]
    y = x.clone()
    if data.draw(st.booleans()):
        y[:, at:] = change
    else:
        y[:, at] = change
    after = layer(y, key_padding_mask=ignore)[0]
    assert torch.equal(after[:, :at], before[:, :at])
    assert not torch.equal(after[:, at:], before[:, at:])


@pytest.mark.parametrize("change", [3.0, torch.nan, torch.inf])
@pytest.mark.parametrize("feature_map", ["cosine", "exp", "elu"])
@pytest.mark.parametrize("kind", KINDS[4:])
def test_causality_of_the_prefill(kind, feature_map, change, make_layer, make_rows):
    """Going on from a state, in every chunk of the scan."""
    layer = make_layer(kind, feature_map=feature_map).eval()
    _, state = layer.prefill(make_rows(2, 3, 6))
    x = make_rows(2, 130, 6, seed=4)
    before, _ = layer.prefill(x, state=state)
    for at in (1, 63, 64, 65, 128):
        y = x.clone()
        y[:, at:] = change
        after, _ = layer.prefill(y, state=state)
        assert torch.equal(after[:, :at], before[:, :at])


@quick
@given(kind=st.sampled_from(["tied", "free"]), size=sizes)
def test_permutation_equivariance(kind, size, make_layer, make_rows, make_mask):
    layer = build(make_layer, kind, size)
    x = draw_rows(make_rows, size)
    ignore = make_mask(size["batch"], size["length"], seed=size["seed"])
    order = torch.randperm(size["length"], generator=torch.Generator().manual_seed(size["seed"]))
    out, loss = objective(layer, x, ignore=ignore)
    moved, same = objective(layer, x[:, order], ignore=ignore[:, order])
    assert_close(moved, out[:, order], **CLOSE[size["dtype"]])
    assert_close(same, loss, **CLOSE[size["dtype"]])


def test_data_weights_are_not_permutation_equivariant(make_layer, make_rows):
    """As the documentation says: anchors are tied to positions."""
    layer, x = make_layer("data-sample").eval(), make_rows(1, 9, 6)
    order = [3, 0, 1, 7, 8, 2, 4, 6, 5]
    assert not torch.allclose(layer(x[:, order])[0], layer(x)[0][:, order])


def test_free_weights_do_not_mix_and_the_others_do(make_layer, make_rows):
    for kind in KINDS:
        layer, x = make_layer(kind).eval(), make_rows(1, 9, 6)
        y = x.clone()
        y[:, 0] += 1.0  # the first position is an anchor of both rules
        moved = (layer(y)[0] - layer(x)[0]).abs().amax(-1)[0] > 1e-9
        assert moved[0]
        assert moved[1:].all() == (kind != "free")
        assert moved[1:].any() == (kind != "free")


@quick
@given(length=st.integers(1, 20), anchors=st.integers(1, 8), seed=st.integers(0, 1000))
def test_only_anchors_matter_for_sampled_weights(length, anchors, seed, make_layer, make_rows):
    layer = make_layer("data-sample", anchors=anchors, seed=seed).eval()
    x = make_rows(1, length, 6, seed=seed)
    steps = max(anchors - 1, 1)
    # the two integers next to every point, so that rounding cannot matter
    near = {i * (length - 1) // steps + up for i in range(anchors) for up in (0, 1)}
    others = [j for j in range(length) if j not in near]
    assume(others)
    y = x.clone()
    y[:, others] += 5.0
    kept = [j for j in range(length) if j in near]
    assert_close(layer(y)[0][:, kept], layer(x)[0][:, kept], rtol=1e-12, atol=1e-12)
    assert_close(layer.ksvd_problem(y).f, layer.ksvd_problem(x).f, rtol=0, atol=0)


@quick
@given(length=st.integers(1, 20), anchors=st.integers(1, 8), seed=st.integers(0, 1000))
def test_every_position_matters_for_segment_means(length, anchors, seed, make_layer, make_rows):
    layer = make_layer("data-mean", anchors=anchors, seed=seed)
    x = make_rows(1, length, 6, seed=seed).requires_grad_()
    f = layer.ksvd_problem(x).f  # (1, h, n, p)
    (gradient,) = torch.autograd.grad(f.sum(), x)
    assert (gradient > 0).all()
    # n rows in all, every one a mean: the weights that the positions get sum to n
    assert_close(gradient.sum(1), torch.full_like(gradient[:, 0], anchors), rtol=1e-12, atol=0)


# -- no NaN of our own making ----------------------------------------------------------------------


def step(layer, x, y=None, ignore=None):
    """Output, loss and all gradients of a training step."""
    layer.zero_grad()
    x = x.clone().requires_grad_()
    y = None if y is None else y.clone().requires_grad_()
    out, loss = objective(layer, x, y, ignore)
    (out.sum() + loss).backward()
    layer.train(False)
    named = {"output": out, "loss": loss, "input": x.grad}
    if y is not None:
        named["context"] = y.grad
    named |= {name: p.grad for name, p in layer.named_parameters()}
    return {name: t.detach() for name, t in named.items() if t is not None}


def assert_finite(found):
    for name, tensor in found.items():
        assert torch.isfinite(tensor).all(), name


@settings(max_examples=60, deadline=None)
@given(
    kind=kinds,
    size=sizes,
    exponents=st.lists(st.integers(-30, 4), min_size=1, max_size=3),
    masked=st.booleans(),
    bias=st.booleans(),
)
def test_no_nan_for_zero_small_and_large_rows(
    kind, size, exponents, masked, bias, make_layer, make_rows, make_mask
):
    layer = build(make_layer, kind, size)
    if not bias:  # then a zero row has a zero query
        with torch.no_grad():
            layer.in_proj_bias.zero_()
    x = draw_rows(make_rows, size)
    if size["feature_map"] != "cosine" and "tied" not in kind:  # D^{-1/2} has no bound
        exponents = [min(e, 0) for e in exponents]
    scale = torch.tensor([0.0, *(10.0**e for e in exponents)], dtype=size["dtype"])
    rows = torch.arange(size["length"] * size["batch"]) % len(scale)
    x = x * scale[rows].view(size["batch"], size["length"], 1)
    ignore = make_mask(size["batch"], size["length"], seed=size["seed"]) if masked else None
    assert_finite(step(layer, x, ignore=ignore))


CLOSE_TYPES = (torch.float32, torch.float64)
MAGNITUDES = (-300, -40, -20, -3, -1, 0, 0.25, 0.5, 1, 1.5, 2, 2.5, 3, 4, 6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize(
    ("kind", "feature_map"),
    [
        *((kind, "cosine") for kind in KINDS),
        *((kind, name) for kind in ("tied", "tied-causal") for name in ("exp", "elu", "softmax")),
    ],
)
def test_no_nan_at_any_magnitude(kind, feature_map, dtype, make_layer, make_rows):
    """All rows of one size. Where scores are normalised the output cannot grow faster than x."""
    for fast in (True, False):
        layer = make_layer(kind, feature_map=feature_map, dtype=dtype)
        layer.fast = fast
        for exponent in MAGNITUDES:
            x = make_rows(2, 6, 6, seed=3) * 10.0**exponent
            assert_finite(step(layer, x.to(dtype)))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("kind", ["data-sample", "data-mean", "free", "free-causal"])
def test_gradient_is_finite_where_the_output_is_moderate(kind, dtype, make_layer, make_rows):
    """With D^{-1/2} of Remark 4.1 the output itself grows without bound; NaN is not the way."""
    layer = make_layer(kind, feature_map="exp", dtype=dtype).eval()
    largest = 0.0
    for exponent in MAGNITUDES:
        x = (make_rows(2, 6, 6, seed=3) * 10.0**exponent).to(dtype).requires_grad_()
        out = layer(x)[0]
        if not torch.isfinite(out).all() or out.abs().max() > torch.finfo(dtype).max ** 0.25:
            break
        largest = exponent
        found = torch.autograd.grad(out.sum(), [x, layer.in_proj_weight, layer.w_e])
        assert all(torch.isfinite(gradient).all() for gradient in found), f"x of size 1e{exponent}"
    assert largest >= 0.5


@pytest.mark.parametrize("kind", ["tied", "tied-causal"])
def test_small_denominators_do_not_cost_the_answer(kind, make_layer, make_rows):
    """Features of long queries are tiny, their ratio is not: float32 stays near float64."""
    layer, wide = (make_layer(kind, feature_map="exp", dtype=d) for d in CLOSE_TYPES)
    for exponent in (0.0, 0.25, 0.4):
        x = (make_rows(2, 6, 6, seed=3) * 10.0**exponent).float()
        results = []
        for one in (layer, wide):
            rows = x.to(one.in_proj_weight.dtype).requires_grad_()
            out = one.eval()(rows)[0]
            (gradient,) = torch.autograd.grad(out.sum(), rows)
            results.append((out.detach(), gradient))
        for found, expected in zip(*results, strict=True):
            error = (found - expected).abs().max() / expected.abs().max()
            assert error < 1e-3, f"x of size 1e{exponent}"


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "plain"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("kind", ["free", "free-causal"])
def test_free_weights_do_not_feel_the_magnitude(kind, dtype, fast, make_layer, make_rows):
    """The cosine is of the direction alone; finite also where the squared norm overflows."""
    layer = make_layer(kind, dtype=dtype).eval()
    layer.fast = fast
    with torch.no_grad():
        layer.in_proj_bias.zero_()
    x = make_rows(2, 6, 6, dtype=dtype)
    expected = layer(x)[0]
    for exponent in (-8, 5, 10, 17) if dtype == torch.float32 else (-8, 10, 100, 150):
        assert_close(layer(x * 10.0**exponent)[0], expected, rtol=1e-4, atol=1e-5)
    beyond = 10.0 ** (30 if dtype == torch.float32 else 200)
    assert torch.isfinite(layer(x * beyond)[0]).all()


# -- masks that leave nothing, and what may stand in a masked position -----------------------------


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "plain"])
@pytest.mark.parametrize("feature_map", ["cosine", "exp", "elu"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_position_masked(kind, feature_map, fast, make_layer, make_rows):
    layer = make_layer(kind, feature_map=feature_map)
    layer.fast = fast
    x = make_rows(2, 5, 6)
    for junk in (1.0, torch.nan):
        x[1] = junk
        for ignore in (torch.ones(2, 5).bool(), torch.tensor([[False], [True]]).expand(2, 5)):
            found = step(layer, x, ignore=ignore.contiguous())
            assert_finite(found)
            assert (found["output"][1] == 0).all()
            assert (found["input"][1] == 0).all()
            if not ignore[0].any():
                assert (found["output"][0] != 0).any()
                assert_close(found["output"][:1], layer.eval()(x[:1])[0])


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "plain"])
@pytest.mark.parametrize("feature_map", ["cosine", "exp", "elu"])
@pytest.mark.parametrize("kind", KINDS[:4])
def test_every_key_masked(kind, feature_map, fast, make_layer, make_rows):
    layer = make_layer(kind, feature_map=feature_map)
    layer.fast = fast
    x, y = make_rows(2, 5, 6), make_rows(2, 4, 6, seed=3)
    y[1] = torch.nan
    ignore = torch.zeros(2, 4, dtype=torch.bool)
    ignore[1] = True
    found = step(layer, x, y, ignore)
    assert_finite(found)
    assert (found["output"][1] == 0).all()
    assert (found["context"][1] == 0).all()
    assert (found["output"][0] != 0).any()


@quick
@given(kind=kinds, size=sizes, junk=st.sampled_from([torch.nan, torch.inf, -torch.inf, 1e30]))
def test_masked_junk_does_not_spread_anywhere(kind, size, junk, make_layer, make_rows, make_mask):
    layer = build(make_layer, kind, size)
    x = draw_rows(make_rows, size)
    ignore = make_mask(size["batch"], size["length"], seed=size["seed"])
    clean = step(layer, x, ignore=ignore)
    x[ignore] = junk
    dirty = step(layer, x, ignore=ignore)
    assert clean.keys() == dirty.keys()
    for name in clean:
        assert torch.equal(clean[name], dirty[name]), name
    assert (dirty["input"][ignore] == 0).all()


@quick
@given(kind=st.sampled_from(KINDS[:4]), size=sizes, context=st.integers(1, 6))
def test_masked_junk_in_the_context_does_not_spread(
    kind, size, context, make_layer, make_rows, make_mask
):
    layer = build(make_layer, kind, size)
    x, y = draw_rows(make_rows, size), draw_rows(make_rows, size, length=context, seed=1)
    ignore = make_mask(size["batch"], context, seed=size["seed"])
    clean = step(layer, x, y, ignore)
    y[ignore] = torch.nan
    dirty = step(layer, x, y, ignore)
    for name in clean:
        assert torch.equal(clean[name], dirty[name]), name
    assert (dirty["context"][ignore] == 0).all()


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "plain"])
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_that_arrive_at_masked_outputs_do_not_enter(
    kind, fast, make_layer, make_rows, make_mask, gradients
):
    """A later layer may make NaN of the rows that nobody reads."""
    layer = make_layer(kind)
    layer.fast = fast
    x, ignore = make_rows(2, 6, 6).requires_grad_(), make_mask(2, 6)
    probe = make_rows(2, 6, 6, seed=5)
    results = []
    for junk in (0.0, torch.nan):
        out = layer.eval()(x, key_padding_mask=ignore)[0]
        upstream = probe.masked_fill(ignore.unsqueeze(-1), junk)
        results.append(torch.autograd.grad(out, [x, layer.in_proj_weight], upstream))
    for clean, dirty in zip(*results, strict=True):
        assert torch.equal(clean, dirty)


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "plain"])
@pytest.mark.parametrize("feature_map", ["cosine", "exp", "elu"])
@pytest.mark.parametrize("kind", KINDS)
def test_valid_nan_is_not_hidden(kind, feature_map, fast, make_layer, make_rows):
    layer = make_layer(kind, feature_map=feature_map)
    layer.fast = fast
    x = make_rows(2, 5, 6)
    clean = step(layer, x)
    for junk in (torch.nan, torch.inf):
        x[0, 2] = junk
        found = step(layer, x)  # does not crash
        if junk is torch.nan:
            assert found["output"][0, 2].isnan().all()
            assert found["loss"].isnan()
        assert_close(found["output"][1], clean["output"][1], rtol=1e-12, atol=1e-12)


# -- memory that nobody wrote ----------------------------------------------------------------------


@pytest.fixture
def poison():
    """torch.empty gives NaN from here on."""
    filled = torch.utils.deterministic.fill_uninitialized_memory
    mode = torch.get_deterministic_debug_mode()
    torch.utils.deterministic.fill_uninitialized_memory = True

    def start():
        torch.use_deterministic_algorithms(True, warn_only=True)
        assert torch.empty(3).isnan().all()

    yield start
    torch.set_deterministic_debug_mode(mode)
    torch.utils.deterministic.fill_uninitialized_memory = filled


@pytest.mark.parametrize(
    ("most", "masked"), [(2, True), (5, False), (5, True), (1000, False), (1000, True)]
)
@pytest.mark.parametrize(
    ("kind", "cross"), [*((kind, False) for kind in KINDS), *((kind, True) for kind in KINDS[:4])]
)
def test_uninitialised_memory_is_never_read(
    kind, cross, most, masked, make_layer, make_rows, make_mask, poison, monkeypatch
):
    channels = 2 * 6 + 2 * 2 * 2
    monkeypatch.setattr("primal_attention.kernels.tiles.TILE", most * channels)
    layer = make_layer(kind)
    x, y = make_rows(3, 7, 6), make_rows(3, 4, 6, seed=3) if cross else None
    ignore = make_mask(3, 4 if cross else 7) if masked else None
    expected = step(layer, x, y, ignore)
    with torch.no_grad():
        inference = layer.eval()(x, y, key_padding_mask=ignore)[0]
    poison()
    found = step(layer, x, y, ignore)
    for name in expected:
        assert torch.equal(found[name], expected[name]), name
    with torch.no_grad():
        assert torch.equal(layer.eval()(x, y, key_padding_mask=ignore)[0], inference)
