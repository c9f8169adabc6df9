"""Softmax attention against nn.MultiheadAttention, and the promises that it makes on top."""

from copy import deepcopy
from itertools import product

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from primal_attention import DenseKernel, SoftmaxAttention, SoftmaxState

from ..pairs import pairwise

EXACT = {"rtol": 1e-10, "atol": 1e-10}
BATCH, LENGTH, WIDTH, HEADS = 3, 7, 12, 3
LENGTHS = torch.tensor([7, 4, 1])
IGNORE = torch.arange(LENGTH) >= LENGTHS[:, None]  # True = ignore
FUTURE = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
HALF = (torch.float16, torch.bfloat16)


def make(**options) -> SoftmaxAttention:
    torch.manual_seed(1)
    options = {"dtype": torch.float64} | options
    layer = SoftmaxAttention(WIDTH, HEADS, **options)
    for parameter in layer.parameters():  # biases too: they start at zero
        nn.init.normal_(parameter, std=0.4)
    return layer.eval()


def twin(layer: SoftmaxAttention) -> nn.MultiheadAttention:
    """torch's own attention with the same weights."""
    reference = nn.MultiheadAttention(
        WIDTH,
        HEADS,
        bias=layer.in_proj_bias is not None,
        batch_first=layer.batch_first,
        dtype=layer.in_proj_weight.dtype,
    )
    reference.load_state_dict(layer.state_dict())
    return reference.train()  # dropout is 0; in evaluation torch takes another path


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def sequences(seed: int = 0, length: int = LENGTH) -> torch.Tensor:
    return draw(BATCH, length, WIDTH, seed=seed)


def as_float(hidden: torch.Tensor) -> torch.Tensor:
    return torch.zeros(hidden.shape, dtype=torch.float64).masked_fill(hidden, -torch.inf)


def random_hidden(*shape: int) -> torch.Tensor:
    """Hidden pairs at random; every query sees key 0."""
    hidden = draw(*shape, seed=9) > 0
    hidden[..., 0] = False
    return hidden


def compare(layer, inputs, rows=slice(None), **masks) -> None:
    """Output, weights and every gradient agree with torch's, on the rows that count."""
    reference = twin(layer)
    results = []
    for module in (layer, reference):
        leaves = [x.clone().requires_grad_() for x in inputs]
        query, key, value = (leaves * 3)[:3] if len(leaves) == 1 else leaves
        out, _ = module(query, key, value, need_weights=False, **masks)
        _, weights = module(
            query, key, value, need_weights=True, average_attn_weights=False, **masks
        )
        (out[rows].sin().sum() + weights.movedim(1, -1)[rows].cos().sum()).backward()
        grads = [x.grad for x in leaves] + [p.grad for p in module.parameters()]
        results.append((out[rows], weights.movedim(1, -1)[rows], grads))
        module.zero_grad()
    (out, weights, grads), (torch_out, torch_weights, torch_grads) = results
    assert_close(out, torch_out, **EXACT)
    assert_close(weights, torch_weights, **EXACT)
    for mine, its in zip(grads, torch_grads, strict=True):
        assert_close(mine, its, **EXACT)


# -- torch's attention as the truth ----------------------------------------------------------------


@pytest.mark.parametrize("bias", [True, False])
def test_self_attention(bias):
    compare(make(bias=bias), [sequences()])


def test_cross_attention():
    query, key = sequences(0), sequences(1, length=5)
    compare(make(), [query, key, key])
    compare(make(), [query, key, sequences(2, length=5)])


def test_value_apart_from_key():
    x, value = sequences(0), sequences(1)
    out, _ = make()(x, x, value)
    assert_close(out, twin(make())(x, x, value, need_weights=False)[0], **EXACT)
    # here the value is the query, and the key is not
    key = sequences(2)
    out, _ = make()(x, key, x)
    assert_close(out, twin(make())(x, key, x, need_weights=False)[0], **EXACT)


@pytest.mark.parametrize("form", [IGNORE, as_float(IGNORE)], ids=["bool", "float"])
def test_key_padding_mask(form):
    compare(make(), [sequences()], rows=~IGNORE, key_padding_mask=form)
    compare(
        make(), [sequences(3, length=4), sequences(1), sequences(2)], key_padding_mask=form
    )  # in cross-attention all queries count


MASKS = {
    "bool": random_hidden(LENGTH, LENGTH),
    "float -inf": as_float(random_hidden(LENGTH, LENGTH)),
    "float bias": draw(LENGTH, LENGTH, seed=4),
    "bias and -inf": draw(LENGTH, LENGTH, seed=4) + as_float(random_hidden(LENGTH, LENGTH)),
    "bool by head": random_hidden(BATCH * HEADS, LENGTH, LENGTH),
    "float by head": draw(BATCH * HEADS, LENGTH, LENGTH, seed=4),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
def test_attn_mask(mask):
    compare(make(), [sequences()], attn_mask=mask)


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
def test_attn_mask_with_padding(mask):
    padding = IGNORE if mask.dtype == torch.bool else as_float(IGNORE)  # torch wants one type
    compare(make(), [sequences()], rows=~IGNORE, attn_mask=mask, key_padding_mask=padding)


def test_attn_mask_is_not_square_in_cross_attention():
    query, key = sequences(0), sequences(1, length=5)
    compare(make(), [query, key, key], attn_mask=random_hidden(LENGTH, 5))


def test_a_float_bias_can_be_learned():
    bias = draw(LENGTH, LENGTH, seed=4).requires_grad_()
    layer, x = make(), sequences()
    layer(x, attn_mask=bias)[0].sin().sum().backward()
    its = bias.detach().clone().requires_grad_()
    twin(layer)(x, x, x, attn_mask=its, need_weights=False)[0].sin().sum().backward()
    assert its.grad.abs().max() > 1e-3
    assert_close(bias.grad, its.grad, **EXACT)


def test_causal_layer():
    layer, x = make(causal=True), sequences()
    reference = twin(layer)(x, x, x, attn_mask=FUTURE)
    out, weights = layer(x, need_weights=True)
    assert_close(layer(x)[0], reference[0], **EXACT)
    assert_close(out, reference[0], **EXACT)
    assert_close(weights, reference[1], **EXACT)


def test_causal_layer_with_masks():
    layer, x, mask = make(causal=True), sequences(), MASKS["bool"]
    reference, _ = twin(layer)(x, x, x, attn_mask=FUTURE | mask, key_padding_mask=IGNORE)
    out, _ = layer(x, attn_mask=mask, key_padding_mask=IGNORE)
    assert_close(out[~IGNORE], reference[~IGNORE], **EXACT)


@pytest.mark.parametrize("need_weights", [False, True])
def test_is_causal_is_honoured_without_a_causal_layer(need_weights):
    layer, x = make(), sequences()
    reference, matrix = twin(layer)(x, x, x, attn_mask=FUTURE)
    for mask in (None, FUTURE, as_float(FUTURE)):
        out, weights = layer(x, attn_mask=mask, is_causal=True, need_weights=need_weights)
        assert_close(out, reference, **EXACT)
        if need_weights:
            assert_close(weights, matrix, **EXACT)


@pytest.mark.parametrize("keys", [5, LENGTH, 9])
def test_is_causal_in_cross_attention(keys):
    layer, query, key = make(), sequences(), sequences(1, length=keys)
    future = torch.ones(LENGTH, keys, dtype=torch.bool).triu(1)
    reference, _ = twin(layer)(query, key, key, attn_mask=future)
    assert_close(layer(query, key, is_causal=True)[0], reference, **EXACT)


def test_is_causal_comes_on_top_of_another_mask():
    layer, x, mask = make(), sequences(), MASKS["bool"]
    reference, _ = twin(layer)(x, x, x, attn_mask=mask | FUTURE)
    assert_close(layer(x, attn_mask=mask, is_causal=True)[0], reference, **EXACT)


@pytest.mark.parametrize("average", [True, False])
def test_weights_have_torchs_shapes(average):
    layer, x = make(), sequences()
    reference = twin(layer)
    for rows in (x, x[0]):
        its = reference(rows, rows, rows, average_attn_weights=average)
        mine = layer(rows, need_weights=True, average_attn_weights=average)
        for a, b in zip(mine, its, strict=True):
            assert_close(a, b, **EXACT)


@pytest.mark.parametrize("batch_first", [True, False])
def test_inside_torchs_encoder(batch_first, monkeypatch):
    torch.manual_seed(0)
    heads = 4  # torch's fused path wants an even number
    layer = nn.TransformerEncoderLayer(
        WIDTH, heads, 16, dropout=0.0, batch_first=batch_first, dtype=torch.float64
    ).train()
    ours = deepcopy(layer)
    ours.self_attn = SoftmaxAttention(WIDTH, heads, batch_first=batch_first, dtype=torch.float64)
    ours.load_state_dict(layer.state_dict())
    x = sequences() if batch_first else sequences().transpose(0, 1).contiguous()
    its = layer(x, src_key_padding_mask=IGNORE)
    kept = ~IGNORE if batch_first else ~IGNORE.T
    calls, forward = [], SoftmaxAttention.forward

    def count(*arguments, **options):
        calls.append(1)
        return forward(*arguments, **options)

    monkeypatch.setattr(SoftmaxAttention, "forward", count)
    for training in (True, False):  # evaluation without gradients must not take the fused path
        with torch.set_grad_enabled(training):
            out = ours.train(training)(x, src_key_padding_mask=IGNORE)
        assert_close(out[kept], its[kept], **EXACT)
    assert len(calls) == 2
    its = layer(x, src_mask=as_float(FUTURE), is_causal=True)
    assert_close(ours(x, src_mask=as_float(FUTURE), is_causal=True), its, **EXACT)


def test_initial_weights_are_spread_as_torchs():
    torch.manual_seed(0)
    mine, its = SoftmaxAttention(64, 2), nn.MultiheadAttention(64, 2)
    assert mine.state_dict().keys() == its.state_dict().keys()
    for name, tensor in its.state_dict().items():
        assert_close(mine.state_dict()[name].std(), tensor.std(), rtol=0.03, atol=0.0)
    bound = (6 / (4 * 64)) ** 0.5
    assert 0.98 * bound < mine.in_proj_weight.abs().max() <= bound


# -- promises --------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("need_weights", [False, True])
def test_padding_changes_nothing(causal, need_weights):
    layer, x = make(causal=causal), sequences()
    together, weights = layer(x, key_padding_mask=IGNORE, need_weights=need_weights)
    for i, n in enumerate(LENGTHS.tolist()):
        alone, own_weights = layer(x[i : i + 1, :n], need_weights=need_weights)
        assert_close(together[i, :n], alone[0], **EXACT)
        assert (together[i, n:] == 0).all()
        if need_weights:
            assert_close(weights[i, :n, :n], own_weights[0], **EXACT)
            assert (weights[i, n:] == 0).all()
            assert (weights[i, :, n:] == 0).all()


def test_padding_may_stand_anywhere():
    layer, x = make(causal=True), sequences()
    ignore = torch.zeros(BATCH, LENGTH, dtype=torch.bool)
    ignore[:, [0, 3, 4]] = True
    out, _ = layer(x, key_padding_mask=ignore)
    assert_close(out[:, [1, 2, 5, 6]], layer(x[:, [1, 2, 5, 6]])[0], **EXACT)
    assert (out[:, [0, 3, 4]] == 0).all()


def blind_calls():
    """Calls in which some queries see no key, with those rows of the output."""
    none = torch.zeros(BATCH, LENGTH, dtype=torch.bool)
    sample = none.clone()
    sample[1] = True
    row = torch.zeros(LENGTH, LENGTH, dtype=torch.bool)
    row[2] = True
    rows = none.clone()
    rows[:, 2] = True
    by_head = row.expand(BATCH * HEADS, LENGTH, LENGTH).clone()
    after = torch.ones_like(row).tril()  # query i sees only keys after it: the last sees none
    last = none.clone()
    last[:, -1] = True
    return {
        "whole sample": ({"key_padding_mask": sample}, sample),
        "bool row": ({"attn_mask": row}, rows),
        "float row": ({"attn_mask": as_float(row)}, rows),
        "by head": ({"attn_mask": by_head}, rows),
        "by the two together": (
            {"attn_mask": ~torch.eye(LENGTH, dtype=torch.bool), "key_padding_mask": IGNORE},
            IGNORE,
        ),
        "with is_causal": (
            {"attn_mask": after, "is_causal": True},
            torch.ones_like(none),
        ),
        "after": ({"attn_mask": after}, last),
    }


@pairwise(
    name=blind_calls(),
    dtype__need_weights=[*product([torch.float64, torch.float32, *HALF], [False, True])],
    cross=[False, True],
)
def test_a_query_without_keys_gives_zero(name, dtype, cross, need_weights):
    masks, blind = blind_calls()[name]
    layer = make(dtype=dtype)
    x = draw(BATCH, LENGTH, WIDTH, dtype=dtype).requires_grad_()
    key = draw(BATCH, LENGTH, WIDTH, seed=1, dtype=dtype) if cross else None
    out, weights = layer(x, key, need_weights=need_weights, **masks)
    assert (out[blind] == 0).all()
    assert (out[~blind] != 0).any(-1).all()
    if need_weights:
        assert (weights[blind] == 0).all()
        assert_close(weights.sum(-1)[~blind], torch.ones_like(weights.sum(-1)[~blind]))
    out.float().square().sum().backward()
    assert x.grad.isfinite().all()
    if cross:
        assert (x.grad[blind] == 0).all()
    assert all(p.grad.isfinite().all() for p in layer.parameters())


def test_a_blind_head_gives_nothing_and_the_others_go_on():
    layer, x = make(), sequences()
    hidden = torch.zeros(BATCH, HEADS, LENGTH, LENGTH, dtype=torch.bool)
    hidden[:, 1, 2] = True  # the second head of the third query
    out, weights = layer(
        x, attn_mask=hidden.flatten(0, 1), need_weights=True, average_attn_weights=False
    )
    plain, _ = layer(x, attn_mask=hidden.flatten(0, 1))
    values = nn.functional.linear(x, layer.in_proj_weight, layer.in_proj_bias)[..., 2 * WIDTH :]
    values = values.unflatten(-1, (HEADS, -1)).transpose(1, 2)
    expected = layer.out_proj((weights @ values).transpose(1, 2).flatten(2))
    assert (weights[:, 1, 2] == 0).all()
    assert (weights[:, 0, 2] != 0).all()
    assert_close(out, expected, **EXACT)
    assert_close(plain, expected, **EXACT)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("poison", [torch.nan, torch.inf])
def test_what_stands_in_ignored_positions_does_not_matter(causal, need_weights, poison):
    layer, x = make(causal=causal), sequences()

    def run(rows):
        rows = rows.clone().requires_grad_()
        layer.zero_grad()
        out, weights = layer(rows, key_padding_mask=IGNORE, need_weights=need_weights)
        out.sin().sum().backward()
        return [out, weights, rows.grad, *(p.grad.clone() for p in layer.parameters())]

    for clean, poisoned in zip(run(x), run(x.masked_fill(IGNORE[..., None], poison)), strict=True):
        assert clean is poisoned is None or torch.equal(clean, poisoned)


def test_nan_in_ignored_keys_and_values_does_not_spread():
    layer, query = make(), sequences()
    key, value = (
        sequences(i).masked_fill(IGNORE[..., None], torch.nan).requires_grad_() for i in (1, 2)
    )
    out, _ = layer(query, key, value, key_padding_mask=IGNORE)
    out.sin().sum().backward()
    assert out.isfinite().all()
    assert all(p.grad.isfinite().all() for p in layer.parameters())
    for leaf in (key, value):
        assert (leaf.grad[IGNORE] == 0).all()
        assert (leaf.grad[~IGNORE] != 0).any()


def test_a_nan_gradient_of_an_ignored_row_does_not_spread():
    layer, x = make(), sequences().requires_grad_()
    out, _ = layer(x, key_padding_mask=IGNORE)
    out.backward(torch.ones_like(out).masked_fill(IGNORE[..., None], torch.nan))
    assert x.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in layer.parameters())


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, *HALF])
def test_nan_in_a_valid_position_is_not_hidden(dtype, need_weights):
    layer, x = make(dtype=dtype), draw(BATCH, LENGTH, WIDTH, dtype=dtype)
    x[1, 2] = torch.nan
    out, _ = layer(x, key_padding_mask=IGNORE, need_weights=need_weights)
    assert out[1, :4].isnan().all()
    assert out[[0, 2]].isfinite().all()


def test_dropout_acts_in_training_only():
    layer, x = make(dropout=0.5), sequences()
    expected, matrix = layer(x, need_weights=True)
    assert_close(layer(x)[0], expected, **EXACT)
    layer.train()
    for need_weights in (False, True):
        mean = sum(layer(x, need_weights=need_weights)[0] for _ in range(400)) / 400
        once, _ = layer(x, need_weights=need_weights)
        assert (once - expected).abs().mean() > 0.1 * expected.abs().mean()
        assert (mean - expected).abs().mean() < 0.1 * expected.abs().mean()
    assert_close(layer(x, need_weights=True)[1], matrix, **EXACT)  # K itself, before dropout


# -- streaming -------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("first", [0, 1, 3, LENGTH])
def test_streamed_is_full(first, batch_first):
    layer, x = make(causal=True, batch_first=batch_first), sequences()
    rows = x if batch_first else x.transpose(0, 1)
    full, _ = layer(rows)
    full = full if batch_first else full.transpose(0, 1)
    state, parts = layer.init_state(BATCH), []
    if first:
        head = x[:, :first] if batch_first else x[:, :first].transpose(0, 1)
        out, state = layer.prefill(head, state=state)
        parts.append(out if batch_first else out.transpose(0, 1))
    for t in range(first, LENGTH):
        out, state = layer.step(x[:, t], state)
        parts.append(out.unsqueeze(1))
    assert_close(torch.cat(parts, 1), full, **EXACT)
    assert isinstance(state, SoftmaxState)
    assert state.length == LENGTH


def test_prefill_goes_on_from_a_state():
    layer, x = make(causal=True), sequences()
    head, state = layer.prefill(x[:, :3])
    tail, _ = layer.prefill(x[:, 3:], state=state)
    assert_close(torch.cat([head, tail], 1), layer(x)[0], **EXACT)


def test_streams_with_padding():
    """Prompts of different lengths, padded, then more tokens: each stream as if it were alone."""
    layer, x, more = make(causal=True), sequences(), sequences(5)
    out, state = layer.prefill(x, key_padding_mask=IGNORE)
    assert_close(out, layer(x, key_padding_mask=IGNORE)[0], **EXACT)
    one, state = layer.step(more[:, 0], state)
    rest, state = layer.prefill(more[:, 1:], state=state)
    for i, n in enumerate(LENGTHS.tolist()):
        alone, _ = layer(torch.cat([x[i : i + 1, :n], more[i : i + 1]], 1))
        assert_close(one[i], alone[0, n], **EXACT)
        assert_close(rest[i], alone[0, n + 1 :], **EXACT)


def test_padding_after_a_start_without():
    layer, x, more = make(causal=True), sequences(), sequences(5)
    _, state = layer.prefill(x)
    out, state = layer.prefill(more, key_padding_mask=IGNORE, state=state)
    ignore = torch.cat([torch.zeros_like(IGNORE), IGNORE], 1)
    full, _ = layer(torch.cat([x, more], 1), key_padding_mask=ignore)
    assert_close(out, full[:, LENGTH:], **EXACT)
    assert torch.equal(state.ignore, ignore)


def test_a_state_is_not_changed_by_a_step():
    layer, x = make(causal=True), sequences()
    _, state = layer.prefill(x[:, :3])
    first, _ = layer.step(x[:, 3], state)
    layer.step(x[:, 4], state)
    again, _ = layer.step(x[:, 3], state)
    assert torch.equal(first, again)


def test_a_stream_of_one_sequence_and_of_3d_tokens():
    layer, x = make(causal=True), sequences()
    out, state = layer.prefill(x[0, :3])
    assert_close(out, layer(x[:1])[0][0, :3], **EXACT)
    token, _ = layer.step(x[:1, 3:4], state)
    assert_close(token, layer(x[:1])[0][:, 3:4], **EXACT)


# -- the matrix ------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
def test_factors_hold_the_attention_matrix(causal):
    layer, x = make(causal=causal), sequences()
    kernel = layer.factors(x, key_padding_mask=IGNORE)
    _, weights = layer(x, key_padding_mask=IGNORE, need_weights=True, average_attn_weights=False)
    assert isinstance(kernel, DenseKernel)
    assert kernel.shape == (BATCH, HEADS, LENGTH, LENGTH)
    assert_close(kernel.dense(), weights, **EXACT)
    valid = (~IGNORE).double()[:, None].expand(BATCH, HEADS, LENGTH)
    assert_close(kernel.row_sums(), valid, **EXACT)


def test_factors_in_cross_attention():
    layer, query, key = make(), sequences(), sequences(1, length=5)
    kernel = layer.factors(query, key)
    assert kernel.shape == (BATCH, HEADS, LENGTH, 5)
    expected = layer(query, key, need_weights=True, average_attn_weights=False)[1]
    assert_close(kernel.dense(), expected, **EXACT)
    assert make(dtype=torch.float16).factors(query.half(), key.half()).dtype == torch.float32


# -- where it runs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("need_weights", [False, True])
def test_half_precision(dtype, need_weights):
    exact, x = make(causal=True), sequences()
    out, _ = make(causal=True).to(dtype)(x.to(dtype), need_weights=need_weights)
    assert out.dtype == dtype
    assert_close(out.double(), exact(x)[0], rtol=0.05, atol=0.05)


@pytest.mark.parametrize("need_weights", [False, True])
def test_autocast(need_weights):
    layer, x = make(dtype=torch.float32), sequences().float()
    mask = MASKS["float bias"].float()
    masks = {"key_padding_mask": IGNORE, "attn_mask": mask, "need_weights": need_weights}
    expected, _ = layer(x, **masks)
    with torch.autocast("cpu", torch.bfloat16):
        out, _ = layer(x, **masks)
        mixed, _ = layer(x.bfloat16(), **masks)
    assert out.dtype == mixed.dtype == torch.bfloat16
    assert_close(out.float(), expected, rtol=0.05, atol=0.05)
    assert_close(mixed.float(), expected, rtol=0.05, atol=0.05)
    out.float().sum().backward()
    assert all(
        p.grad.dtype == torch.float32 and p.grad.isfinite().all() for p in layer.parameters()
    )


def test_autocast_stream():
    layer, x = make(dtype=torch.float32, causal=True), sequences().float()
    with torch.autocast("cpu", torch.bfloat16):
        full, _ = layer(x)
        out, state = layer.prefill(x[:, :3])
        token, _ = layer.step(x[:, 3], state)
    assert_close(torch.cat([out, token[:, None]], 1), full[:, :4], rtol=0.02, atol=0.02)


def test_meta_parameters():
    layer = SoftmaxAttention(WIDTH, HEADS, device="meta", dtype=torch.bfloat16)
    assert {p.device.type for p in layer.parameters()} == {"meta"}
    layer = layer.to_empty(device="cpu")
    for parameter in layer.parameters():
        nn.init.constant_(parameter, torch.nan)
    layer.reset_parameters()
    assert all(p.isfinite().all() and p.dtype == torch.bfloat16 for p in layer.parameters())


def test_meta_forward():
    layer = make(device="meta", causal=True)
    x = torch.empty(BATCH, LENGTH, WIDTH, dtype=torch.float64, device="meta")
    out, weights = layer(x, key_padding_mask=IGNORE.to("meta"), need_weights=True)
    assert out.shape == x.shape
    assert weights.shape == (BATCH, LENGTH, LENGTH)
    assert layer(x)[0].device.type == "meta"


def check_compiled(layer, calls, backend):
    torch._dynamo.reset()
    x = sequences()
    compiled = torch.compile(layer, fullgraph=True, backend=backend, dynamic=True)
    for masks in calls:
        grads = []
        for run in (layer, compiled):
            layer.zero_grad()
            out, weights = run(x, **masks)
            out.sin().sum().backward()
            grads.append([out, weights, *(p.grad.clone() for p in layer.parameters())])
        for eager, graph in zip(*grads, strict=True):
            assert eager is graph is None or assert_close(eager, graph, **EXACT) is None


@pytest.mark.slow
def test_compile():
    """Every kind of mask; the sweep compiles the causal layer."""
    calls = [
        {"key_padding_mask": IGNORE, "attn_mask": MASKS["bool by head"]},
        {"attn_mask": MASKS["float bias"], "need_weights": True},
        {"key_padding_mask": as_float(IGNORE), "is_causal": True},
    ]
    check_compiled(make(), calls, "eager")


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("causal", [False, True])
def test_compile_with_every_mask_alone(causal, backend):
    calls = [{}, {"key_padding_mask": IGNORE}, {"key_padding_mask": as_float(IGNORE)}]
    calls += [{"attn_mask": MASKS["bool by head"]}]
    calls += [{"attn_mask": MASKS["float bias"], "need_weights": True}, {"is_causal": True}]
    check_compiled(make(causal=causal), calls, backend)


def test_compiled_stream():
    torch._dynamo.reset()
    layer, x = make(causal=True), sequences()
    step = torch.compile(layer.step, fullgraph=True, backend="eager", dynamic=True)
    with torch.no_grad():
        _, state = layer.prefill(x[:, :2])
        for t in range(2, LENGTH):
            out, state = step(x[:, t], state)
            assert_close(out, layer(x[:, : t + 1])[0][:, -1], **EXACT)


@pytest.mark.slow
@pytest.mark.parametrize(("causal", "padded"), [(False, True), (True, False)])
def test_export_with_any_batch_and_length(causal, padded):
    layer, x = make(causal=causal), sequences()
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length")
    masks = {"key_padding_mask": IGNORE} if padded else {}
    shapes = {"query": {0: batch, 1: length}}
    shapes |= {"key_padding_mask": {0: batch, 1: length}} if padded else {}
    program = torch.export.export(layer, (x,), masks, dynamic_shapes=shapes)
    other = draw(5, 11, WIDTH, seed=3)
    masks = {"key_padding_mask": draw(5, 11, seed=4) > 0} if padded else {}
    assert_close(program.module()(other, **masks)[0], layer(other, **masks)[0], **EXACT)


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"embed_dim": 0}, "embed_dim is 0; expected an integer of at least 1"),
        ({"embed_dim": 8.0}, "embed_dim is 8.0; expected an integer"),
        ({"num_heads": True}, "num_heads is True; expected an integer"),
        ({"num_heads": 3}, "num_heads is 3; expected a divisor of embed_dim = 8"),
        ({"dropout": 1.0}, r"dropout is 1.0; expected a number in \[0, 1\)"),
        ({"dropout": -0.1}, "dropout is -0.1"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        SoftmaxAttention(**{"embed_dim": 8, "num_heads": 2} | options)


def test_bad_attn_mask():
    layer, x = make(), sequences()
    with pytest.raises(TypeError, match=r"attn_mask has dtype torch.uint8; expected torch.bool"):
        layer(x, attn_mask=torch.zeros(LENGTH, LENGTH, dtype=torch.uint8))
    for shape in ((LENGTH, 6), (1, LENGTH, LENGTH), (BATCH, HEADS, LENGTH, LENGTH), (LENGTH,)):
        expected = rf"attn_mask has shape \({shape[0]},.*expected \(7, 7\) or .* = 9, 7, 7\)"
        with pytest.raises(ValueError, match=expected):
            layer(x, attn_mask=torch.zeros(shape, dtype=torch.bool))


def test_a_finite_padding_mask_is_refused():
    with pytest.raises(ValueError, match=r"key_padding_mask holds -1.0; expected only 0"):
        make()(sequences(), key_padding_mask=-IGNORE.double())


def test_a_causal_layer_is_for_self_attention():
    with pytest.raises(ValueError, match="a causal layer was given a key that is not the query"):
        make(causal=True)(sequences(0), sequences(1))


def test_streaming_needs_a_causal_layer():
    layer, x = make(), sequences()
    state = make(causal=True).init_state(BATCH)
    for name, call in (
        ("init_state", lambda: layer.init_state(2)),
        ("prefill", lambda: layer.prefill(x)),
        ("prefill", lambda: layer.step(x[:, 0], state)),
    ):
        with pytest.raises(ValueError, match=f"{name} needs a state; expected .* causal=True"):
            call()


def test_bad_stream():
    layer, x = make(causal=True), sequences()
    with pytest.raises(ValueError, match=r"the state has batch size 2; expected 3"):
        layer.prefill(x, state=layer.init_state(2))
    with pytest.raises(ValueError, match=r"x_t has shape \(3, 7, 12\); expected \(batch, 12\)"):
        layer.step(x, layer.init_state(BATCH))


def test_repr_names_the_options():
    assert "12, 3, causal=True, dropout=0.5" in repr(make(causal=True, dropout=0.5))
