"""A stream of tokens gives what the whole sequence gives, from a state of constant size."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

EXACT = {"rtol": 1e-10, "atol": 1e-11}
KINDS = ["free-causal", "tied-causal"]
every = pytest.mark.parametrize(
    ("kind", "feature_map"), [(kind, name) for kind in KINDS for name in ("cosine", "exp")]
)


def held(state):
    return [t for t in state if t is not None]


def assert_same_state(found, expected):
    for a, b in zip(held(found), held(expected), strict=True):
        assert_close(a, b, **EXACT)


@every
def test_step_by_step_is_the_full_forward(kind, feature_map, make_layer, make_rows):
    layer = make_layer(kind, feature_map=feature_map).eval()
    x = make_rows(2, 70, 6)
    expected, _ = layer(x)
    prefilled, after = layer.prefill(x)
    assert_close(prefilled, expected, **EXACT)
    state = layer.init_state(2)
    for t in range(70):
        out, state = layer.step(x[:, t], state)
        assert out.shape == (2, 6)
        assert_close(out, expected[:, t], **EXACT)
    assert_same_state(state, after)
    assert (state.seen == 70).all()


@every
@settings(max_examples=15, deadline=None)
@given(
    cuts=st.lists(st.sampled_from([1, 2, 3, 7, 31, 63, 64, 65, 129]), min_size=1, max_size=6),
    masked=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_chunks_of_any_size(
    kind, feature_map, cuts, masked, seed, make_layer, make_rows, make_mask
):
    layer = make_layer(kind, feature_map=feature_map, seed=seed).eval()
    length = sum(cuts)
    x = make_rows(2, length, 6, seed=seed)
    ignore = None
    if masked:
        ignore = make_mask(2, length, seed=seed)
        x[ignore] = torch.nan
    expected, _ = layer(x, key_padding_mask=ignore)
    state, parts = None, []
    for part, mask in zip(
        x.split(cuts, dim=1), [None] * len(cuts) if ignore is None else ignore.split(cuts, dim=1),
        strict=True,
    ):  # fmt: skip
        out, state = layer.prefill(part, mask, state)
        parts.append(out)
    assert_close(torch.cat(parts, dim=1), expected, **EXACT)
    valid = torch.full((2,), length) if ignore is None else (~ignore).sum(-1)
    assert torch.equal(state.seen, valid)


@every
def test_padded_prefill_goes_on_like_the_sequence_alone(kind, feature_map, make_layer, make_rows):
    """Prompts of different lengths in one batch, then tokens for all of them."""
    layer = make_layer(kind, feature_map=feature_map).eval()
    prompts, tokens = make_rows(3, 9, 6), make_rows(3, 4, 6, seed=5)
    lengths = [9, 4, 1]
    for left in (False, True):  # padding after or before the prompt
        ignore = torch.stack([torch.arange(9) >= n for n in lengths])
        padded = prompts.masked_fill(ignore.unsqueeze(-1), torch.nan)
        if left:
            ignore, padded = ignore.flip(1), padded.flip(1)
        _, state = layer.prefill(padded, ignore)
        outs = []
        for t in range(4):
            out, state = layer.step(tokens[:, t], state)
            outs.append(out)
        for b, n in enumerate(lengths):
            prompt = padded[b : b + 1, ~ignore[b]]
            assert prompt.shape[1] == n
            whole = layer(torch.cat([prompt, tokens[b : b + 1]], dim=1))[0]
            assert_close(torch.stack(outs, dim=1)[b], whole[0, n:], **EXACT)


@every
def test_prefill_without_any_valid_position(kind, feature_map, make_layer, make_rows):
    layer = make_layer(kind, feature_map=feature_map).eval()
    junk = torch.full((2, 5, 6), torch.nan).double()
    out, state = layer.prefill(junk, torch.ones(2, 5, dtype=torch.bool))
    assert (out == 0).all()
    assert_same_state(state, layer.init_state(2))
    x = make_rows(2, 3, 6)
    assert_close(layer.prefill(x, state=state)[0], layer(x)[0], **EXACT)


@every
def test_after_a_long_prefix(kind, feature_map, make_layer, make_rows):
    layer = make_layer(kind, feature_map=feature_map).eval()
    x = make_rows(1, 20_000, 6)
    with torch.no_grad():
        expected, _ = layer(x)
        _, state = layer.prefill(x[:, :-20])
        for t in range(20):
            out, state = layer.step(x[:, -20 + t], state)
            assert_close(out, expected[:, -20 + t], **EXACT)


@every
def test_the_state_does_not_grow(kind, feature_map, make_layer, make_rows):
    layer = make_layer(kind, feature_map=feature_map).eval()
    empty = layer.init_state(2)
    shapes = [t.shape for t in held(empty)]
    numbers = sum(t[0].numel() for t in held(empty))
    # sum of the inputs, or phi h^T for both sides and heads; a column or a sum more if positive
    positive = feature_map != "cosine"
    expected = 6 + positive * 6 if kind == "free-causal" else 2 * 2 * 3 * (2 + positive)
    assert numbers == expected + 1
    for length in (1, 10, 300):
        _, state = layer.prefill(make_rows(2, length, 6))
        assert [t.shape for t in held(state)] == shapes
        assert (state.seen == length).all()


@every
def test_a_state_is_not_changed_by_its_use(kind, feature_map, make_layer, make_rows):
    """Beams fork a stream: the same state goes on twice."""
    layer = make_layer(kind, feature_map=feature_map).eval()
    _, state = layer.prefill(make_rows(2, 5, 6))
    before = [t.clone() for t in held(state)]
    token = make_rows(2, 6, seed=4)
    first, _ = layer.step(token, state)
    second, _ = layer.step(token, state)
    assert torch.equal(first, second)
    for a, b in zip(held(state), before, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("kind", KINDS)
def test_layouts(kind, make_layer, make_rows):
    layer = make_layer(kind).eval()
    x = make_rows(2, 5, 6)
    expected, _ = layer(x)
    out, _ = layer.step(x[:, :1], layer.init_state(2))  # (B, 1, d) as well as (B, d)
    assert out.shape == (2, 1, 6)
    assert_close(out, expected[:, :1], **EXACT)
    alone, state = layer.prefill(x[0])  # one sequence
    assert_close(alone, expected[0], **EXACT)
    assert state.seen.shape == (1,)
    sequence_first = make_layer(kind, batch_first=False).eval()
    out, state = sequence_first.prefill(x[:, :3].transpose(0, 1))
    assert_close(out.transpose(0, 1), expected[:, :3], **EXACT)
    out, _ = sequence_first.step(x[:, 3], state)
    assert_close(out, expected[:, 3], **EXACT)


@pytest.mark.parametrize("kind", KINDS)
def test_float32_stream(kind, make_layer, make_rows):
    layer = make_layer(kind, dtype=torch.float32).eval()
    x = make_rows(1, 500, 6, dtype=torch.float32)
    expected, _ = layer(x)
    state = layer.init_state(1)
    with torch.no_grad():
        for t in range(500):
            out, state = layer.step(x[:, t], state)
            assert_close(out, expected[:, t], rtol=1e-3, atol=1e-4)


def test_only_causal_layers_stream(make_layer, make_rows):
    for kind in ("data-sample", "free", "tied"):
        layer = make_layer(kind)
        with pytest.raises(ValueError, match=r"init_state .*causal=True"):
            layer.init_state(2)
        with pytest.raises(ValueError, match=r"prefill .*causal=True"):
            layer.prefill(make_rows(2, 3, 6))
        with pytest.raises(ValueError, match="causal=True"):
            layer.step(make_rows(2, 6), make_layer("free-causal").init_state(2))


@pytest.mark.parametrize("kind", KINDS)
def test_bad_input(kind, make_layer, make_rows):
    layer = make_layer(kind)
    state = layer.init_state(3)
    with pytest.raises(ValueError, match="batch size 3; expected 2"):
        layer.step(make_rows(2, 6), state)
    with pytest.raises(ValueError, match="batch size 3; expected 2"):
        layer.prefill(make_rows(2, 4, 6), state=state)
    with pytest.raises(ValueError, match=r"x_t has shape \(3, 2, 6\); expected \(batch, 6\)"):
        layer.step(make_rows(3, 2, 6), state)
    with pytest.raises(ValueError, match="width 5; expected embed_dim = 6"):
        layer.step(make_rows(3, 5), state)
    with pytest.raises(ValueError, match="length 0"):
        layer.prefill(make_rows(3, 0, 6), state=state)
