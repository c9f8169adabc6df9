"""One sweep over every registered attention: what all of them promise.

A new attention joins by being registered. It needs an entry in VARIANTS only if it has options that
must be given, or kinds that differ enough to be tested apart.
"""

from copy import deepcopy
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from primal_attention import attention_info, available_attentions, make_attention

from .draws import draw

BATCH, LENGTH, CONTEXT, WIDTH, HEADS = 3, 9, 7, 12, 3
LENGTHS = (9, 5, 1)
IGNORE = torch.arange(LENGTH) >= torch.tensor(LENGTHS)[:, None]  # True = ignore
EXACT = {"rtol": 1e-9, "atol": 1e-9}


@dataclass(frozen=True)
class Variant:
    options: dict[str, Any] = field(default_factory=dict)
    refuses_causal: bool = False  # a kind that cannot be causal, of a mechanism that can


VARIANTS: dict[str, list[Variant]] = {
    "cosformer": [Variant(refuses_causal=True), Variant({"max_length": 80})],
    "performer": [Variant({"features": 7})],
    "lka": [Variant(), Variant({"deformable": True, "kernel": 3, "large": 3})],
    "longformer": [Variant({"window": 5}), Variant({"window": 5, "global_tokens": 2})],
    "reformer": [Variant({"bucket_size": 3, "hashes": 4})],
    "linformer": [
        Variant({"max_length": 12, "projection": 4}),
        Variant({"max_length": 9, "projection": 4, "share_kv": True}),
    ],
    "nystrom": [
        Variant({"landmarks": 4, "residual_width": 3}),
        Variant({"landmarks": 4, "residual_width": None}),
    ],
    "primal": [
        Variant({"rank": 4, "weights": "data", "anchors": 6}, refuses_causal=True),
        Variant({"rank": 4, "weights": "data", "anchors": 6, "anchor_rule": "mean"}, True),
        Variant({"rank": 4, "weights": "data", "anchors": 6, "anchor_rule": "learned"}, True),
        Variant({"rank": 4, "weights": "free"}),
        Variant({"rank": 4, "weights": "tied"}),
        Variant({"rank": 4, "weights": "tied", "feature_map": "cosine"}),
        Variant({"rank": 4, "weights": "free", "feature_map": "exp"}),
        Variant({"rank": 4, "weights": "tied", "feature_map": "exp"}),
        Variant({"rank": 4, "weights": "tied", "feature_map": "gaussian"}),
    ],
    "soft": [Variant({"landmarks": 4})],
}


@dataclass(frozen=True)
class Case:
    name: str
    options: dict[str, Any]

    @property
    def causal(self) -> bool:
        return bool(self.options.get("causal"))

    def __str__(self) -> str:
        return "-".join([self.name, *(f"{k}={v}" for k, v in self.options.items())])

    def make(self, *, seed: int = 1, heads: int = HEADS, **options: Any) -> nn.Module:
        torch.manual_seed(seed)
        options = {"dtype": torch.float64} | self.options | options
        layer = make_attention(self.name, WIDTH, heads, **options)
        for name, parameter in layer.named_parameters():
            if name.endswith("bias"):  # zero at the start, where a mistake would not show
                nn.init.normal_(parameter, std=0.3)
        return layer.eval()


def cases() -> list[Case]:
    found = []
    for name in available_attentions():
        for variant in VARIANTS.get(name, [Variant()]):
            found.append(Case(name, variant.options))
            if attention_info(name).causal and not variant.refuses_causal:
                found.append(Case(name, variant.options | {"causal": True}))
    return found


ALL = cases()
CAUSAL = [case for case in ALL if case.causal]
STREAMS = [case for case in CAUSAL if attention_info(case.name).streaming]
CROSS = [case for case in ALL if attention_info(case.name).cross and not case.causal]
REFUSING = [
    Case(name, variant.options)
    for name in available_attentions()
    for variant in VARIANTS.get(name, [])
    if variant.refuses_causal
]


def sweep(chosen: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", chosen, ids=str)


def sequences(seed: int = 0, length: int = LENGTH) -> Tensor:
    return draw(BATCH, length, WIDTH, seed=seed)


def as_float(ignore: Tensor) -> Tensor:
    return torch.zeros(ignore.shape, dtype=torch.float64).masked_fill(ignore, -torch.inf)


def test_the_table_names_attentions_that_exist():
    assert set(VARIANTS) <= set(available_attentions())


# -- calls -----------------------------------------------------------------------------------------


@sweep(ALL)
def test_shapes(case):
    layer = case.make()
    lengths = (1, 2, LENGTH, 40) if attention_info(case.name).any_length else (LENGTH,)
    for length in lengths:
        x = sequences(length=length)
        out, weights = layer(x)
        assert out.shape == x.shape
        assert out.dtype == x.dtype
        assert weights is None
        assert out.isfinite().all()
        assert out.abs().max() > 0


@sweep(ALL)
def test_key_and_value_default_to_query(case):
    layer, x = case.make(), sequences()
    assert torch.equal(layer(x, x, x)[0], layer(x)[0])


@sweep(ALL)
def test_weights_are_given_or_refused(case):
    layer, x = case.make(), sequences()
    try:
        out, weights = layer(x, need_weights=True)
    except ValueError as error:
        assert "need_weights" in str(error)  # noqa: PT017
        return
    assert_close(out, layer(x)[0], **EXACT)
    assert weights.shape == (BATCH, LENGTH, LENGTH)
    _, by_head = layer(x, need_weights=True, average_attn_weights=False)
    assert by_head.shape == (BATCH, HEADS, LENGTH, LENGTH)
    assert_close(by_head.mean(1), weights, **EXACT)
    assert layer(x[0], need_weights=True)[1].shape == (LENGTH, LENGTH)


@sweep(ALL)
def test_weights_in_training_are_those_before_dropout(case):
    if "dropout" not in attention_info(case.name).options:
        pytest.skip("no dropout")
    layer, x = case.make(dropout=0.5), sequences()
    _, expected = layer(x, need_weights=True)
    _, weights = layer.train()(x, need_weights=True)
    assert_close(weights, expected, **EXACT)
    assert layer.training


@sweep(ALL)
def test_precision(case):
    layer, x = case.make(), sequences()
    exact = layer(x, key_padding_mask=IGNORE)[0]
    largest = exact.abs().max().item()
    for dtype, off in ((torch.float64, 0.0), (torch.float32, 1e-4), (torch.bfloat16, 0.1)):
        out, _ = deepcopy(layer).to(dtype)(x.to(dtype), key_padding_mask=IGNORE)
        assert out.dtype == dtype
        assert_close(out.double(), exact, rtol=off, atol=off * largest)


@sweep(ALL)
def test_dtype_of_the_parameters(case):
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        layer = case.make(dtype=dtype)
        assert {p.dtype for p in layer.parameters()} == {dtype}
        assert layer(sequences().to(dtype))[0].dtype == dtype


@sweep(ALL)
def test_another_dtype_is_refused(case):
    with pytest.raises(ValueError, match=r"query has dtype torch.float32; expected torch.float64"):
        case.make()(sequences().float())


@sweep(ALL)
def test_bool_mask_is_float_mask(case):
    layer, x = case.make(), sequences()
    out, _ = layer(x, key_padding_mask=IGNORE)
    assert torch.equal(out, layer(x, key_padding_mask=as_float(IGNORE))[0])
    assert_close(layer(x, key_padding_mask=torch.zeros_like(IGNORE))[0], layer(x)[0], **EXACT)


@sweep(ALL)
def test_padding_changes_nothing(case):
    layer, x = case.make(), sequences()
    together, _ = layer(x, key_padding_mask=IGNORE)
    for i, n in enumerate(LENGTHS):
        assert_close(together[i, :n], layer(x[i : i + 1, :n])[0][0], **EXACT)
        assert (together[i, n:] == 0).all()


@sweep(ALL)
def test_padding_may_stand_first(case):
    layer, x = case.make(), sequences()
    together, _ = layer(x, key_padding_mask=IGNORE.flip(1))
    for i, n in enumerate(LENGTHS):
        assert_close(together[i, -n:], layer(x[i : i + 1, -n:])[0][0], **EXACT)


@sweep(ALL)
def test_samples_do_not_see_each_other(case):
    layer, x = case.make(), sequences()
    out, _ = layer(x)
    assert_close(layer(x[1:2])[0], out[1:2], **EXACT)
    order = torch.tensor([2, 0, 1])
    assert_close(layer(x[order])[0], out[order], **EXACT)
    other = x.clone()
    other[0] = torch.nan
    assert torch.equal(layer(other)[0][1:], out[1:])


@sweep(ALL)
def test_length_first_is_the_transpose(case):
    x = sequences()
    expected, _ = case.make()(x, key_padding_mask=IGNORE)
    layer = case.make(batch_first=False)
    out, _ = layer(x.transpose(0, 1), key_padding_mask=IGNORE)
    assert_close(out.transpose(0, 1), expected, **EXACT)


@sweep(ALL)
def test_one_sequence_without_a_batch(case):
    layer, x = case.make(), sequences()
    expected, _ = layer(x, key_padding_mask=IGNORE)
    for batch_first in (True, False):
        layer.batch_first = batch_first
        out, _ = layer(x[1], key_padding_mask=IGNORE[1])
        assert out.shape == (LENGTH, WIDTH)
        assert_close(out, expected[1], **EXACT)


@sweep(ALL)
def test_a_mask_of_pairs_is_honoured_or_refused(case):
    """Never dropped: hiding a key from one query changes it, or raises."""
    layer, x = case.make(), sequences()
    hidden = torch.zeros(LENGTH, LENGTH, dtype=torch.bool)
    hidden[4, 2] = True
    plain, _ = layer(x)
    for mask in (hidden, as_float(hidden), draw(LENGTH, LENGTH, seed=3)):
        try:
            out, _ = layer(x, attn_mask=mask)
        except ValueError as error:
            assert "attn_mask" in str(error)  # noqa: PT017
        else:
            assert not torch.equal(out[:, 4], plain[:, 4])


@sweep(ALL)
def test_wrong_widths_are_named(case):
    with pytest.raises(ValueError, match=f"query has width 5; expected embed_dim = {WIDTH}"):
        case.make()(torch.zeros(2, 3, 5, dtype=torch.float64))


@sweep([case for case in ALL if not case.causal])
def test_what_is_no_tensor_is_named(case):
    """None, lists, arrays and sparse tensors, in the place of rows and of masks."""
    layer, x = case.make(), sequences()
    for wrong in (None, x.tolist(), x.numpy()):
        kind = type(wrong).__name__
        message = f"query is of type {kind}; expected a Tensor .batch, length, {WIDTH}."
        with pytest.raises(TypeError, match=message):
            layer(wrong)
    with pytest.raises(ValueError, match=r"query has layout .*sparse_coo; expected"):
        layer(x.to_sparse())
    with pytest.raises(TypeError, match="key_padding_mask is of type list; expected a Tensor"):
        layer(x, key_padding_mask=IGNORE.tolist())
    with pytest.raises(TypeError, match="attn_mask is of type list; expected a Tensor"):
        layer(x, attn_mask=[[True]])
    for name, mask in {"key_padding_mask": IGNORE, "attn_mask": torch.eye(LENGTH) > 0}.items():
        with pytest.raises(ValueError, match=f"{name} has layout .*sparse_coo; expected"):
            layer(x, **{name: mask.to_sparse()})
    mask = torch.zeros(5, LENGTH, LENGTH, dtype=torch.bool)
    with pytest.raises(ValueError, match=f"num_heads = {BATCH * HEADS}, {LENGTH}, {LENGTH}"):
        layer(x, attn_mask=mask)


@sweep([case for case in ALL if not case.causal])
def test_tracing_is_refused(case):
    """A trace would keep the lengths of its example, as numbers, in the middle of the graph."""
    layer = case.make()
    with pytest.raises(RuntimeError, match=r"torch.jit.trace would keep the lengths of its ex"):
        torch.jit.trace(lambda x: layer(x)[0], (sequences(),), check_trace=False)


# -- cross-attention -------------------------------------------------------------------------------


@sweep(CROSS)
def test_cross_attention(case):
    layer, x, y = case.make(), sequences(), sequences(1, length=CONTEXT)
    out, _ = layer(x, y)
    assert out.shape == x.shape
    assert_close(out, layer(x, y, y)[0], **EXACT)
    flipped = case.make(batch_first=False)(x.transpose(0, 1), y.transpose(0, 1))[0]
    assert_close(flipped.transpose(0, 1), out, **EXACT)
    assert_close(layer(x[0], y[0])[0], out[0], **EXACT)


@sweep(CROSS)
def test_padding_of_the_context_changes_nothing(case):
    layer, x, y = case.make(), sequences(length=4), sequences(1)
    together, _ = layer(x, y.masked_fill(IGNORE[..., None], torch.nan), key_padding_mask=IGNORE)
    for i, n in enumerate(LENGTHS):
        assert_close(together[i], layer(x[i : i + 1], y[i : i + 1, :n])[0][0], **EXACT)


@sweep(CROSS)
def test_no_context_gives_zero(case):
    layer, x, y = case.make(), sequences().requires_grad_(), sequences(1)
    ignore = torch.zeros(BATCH, LENGTH, dtype=torch.bool)
    ignore[1] = True
    out, _ = layer(x, y, key_padding_mask=ignore)
    assert (out[1] == 0).all()
    assert (out[[0, 2]] != 0).any(-1).all()
    out.sin().sum().backward()
    leaves = [x, *layer.parameters()]
    assert all(leaf.grad is None or leaf.grad.isfinite().all() for leaf in leaves)


@sweep(CROSS)
def test_a_summary_is_the_context(case):
    """`attend(query, summarise(key))` is `forward(query, key)`, with its masks and gradients."""
    layer, x = case.make(), sequences(length=4).requires_grad_()
    y = sequences(1).masked_fill(IGNORE[..., None], torch.nan).requires_grad_()
    ignore = IGNORE.clone()
    ignore[1] = True  # no context at all
    for mask, key in ((ignore, y), (None, sequences(2))):
        expected, _ = layer(x, key, key_padding_mask=mask)
        out = layer.attend(x, layer.summarise(key, mask))
        assert_close(out, expected, **EXACT)
        wanted, found = (
            torch.autograd.grad(rows.sin().sum(), x, materialize_grads=True, allow_unused=True)
            for rows in (expected, out)
        )
        assert_close(found, wanted, **EXACT)
    turned = case.make(batch_first=False)
    out = turned.attend(x.transpose(0, 1), turned.summarise(y.transpose(0, 1), ignore))
    assert_close(out.transpose(0, 1), layer(x, y, key_padding_mask=ignore)[0], **EXACT)
    alone = layer.attend(x[0], layer.summarise(y[0, :5]))
    assert_close(alone, layer(x[:1], y[:1, :5])[0][0], **EXACT)


@sweep(CROSS)
def test_a_summary_is_as_large_as_the_registry_says(case):
    layer, growth = case.make(), attention_info(case.name).summary
    lengths = (3, 9)
    sizes = [layer.summarise(sequences(length=length)).numbers for length in lengths]
    assert growth in ("constant", "linear")
    assert (sizes[0] == sizes[1]) == (growth == "constant")
    assert layer.summarise(sequences()).growth == growth


@sweep(CROSS)
def test_summaries_add_up(case):
    layer, x = case.make(), sequences(length=4)
    first, second = sequences(1, length=3), sequences(2, length=5)
    whole, _ = layer(x, torch.cat([first, second], 1))
    parts = layer.summarise(first), layer.summarise(second)
    if case.options.get("weights") == "data":
        with pytest.raises(ValueError, match="picked from the whole context"):
            _ = parts[0] + parts[1]
        return
    joined = parts[0] + parts[1]
    assert_close(layer.attend(x, joined), whole, **EXACT)
    if attention_info(case.name).summary == "constant":
        assert_close(layer.attend(x, joined - parts[1]), layer(x, first)[0], **EXACT)
        if case.options.get("weights") != "free":  # those divide by a root of the sums
            assert_close(layer.attend(x, joined.faded(0.5)), whole, **EXACT)


@sweep([case for case in ALL if case not in CROSS])
def test_what_has_no_context_has_no_summary(case):
    assert case.causal or attention_info(case.name).summary is None
    with pytest.raises(ValueError, match="has no context apart from its queries"):
        case.make().summarise(sequences())


@sweep([case for case in ALL if case not in CROSS])
def test_cross_attention_is_refused_where_it_cannot_be(case):
    with pytest.raises(ValueError, match="key"):
        case.make()(sequences(), sequences(1, length=CONTEXT))


# -- causal ----------------------------------------------------------------------------------------


@sweep(CAUSAL)
@pytest.mark.parametrize(("dtype", "padded"), [(torch.float32, False), (torch.float64, True)])
def test_the_future_is_not_seen(case, dtype, padded):
    layer = case.make(dtype=dtype)
    length = 70  # beyond one chunk or block
    x = draw(BATCH, length, WIDTH).to(dtype)
    ignore = draw(BATCH, length, seed=2) > 1 if padded else None
    out, _ = layer(x, key_padding_mask=ignore)
    for t in (1, 2, 33, 64, 69):
        other = x.clone()
        other[:, t:] = 10 * draw(BATCH, length - t, WIDTH, seed=t).to(dtype)
        changed, _ = layer(other, key_padding_mask=ignore)
        assert torch.equal(changed[:, :t], out[:, :t])
        assert not torch.equal(changed[:, t:], out[:, t:])


@sweep(CAUSAL)
def test_the_future_has_no_gradient(case):
    layer, x = case.make(), sequences().requires_grad_()
    layer(x)[0][:, 4].sin().sum().backward()
    assert (x.grad[:, 5:] == 0).all()
    first = 4 if case.name == "none" else 0  # which has no past either
    assert (x.grad[:, first:5] != 0).any(-1).all()


@sweep(CAUSAL)
def test_the_causal_mask_and_flag_are_accepted(case):
    layer, x = case.make(), sequences()
    future = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    out, _ = layer(x)
    for mask in (None, future, as_float(future)):
        for is_causal in (False, True):
            assert_close(layer(x, attn_mask=mask, is_causal=is_causal)[0], out, **EXACT)


@sweep(REFUSING)
def test_kinds_that_cannot_be_causal_say_so(case):
    with pytest.raises(ValueError, match="causal=True"):
        case.make(causal=True)


@sweep(STREAMS)
def test_streamed_is_full(case):
    layer, x = case.make(), sequences()
    full, _ = layer(x)
    for first in (0, 4, LENGTH):
        state, parts = layer.init_state(BATCH), []
        if first:
            out, state = layer.prefill(x[:, :first], state=state)
            parts.append(out)
        for t in range(first, LENGTH):
            out, state = layer.step(x[:, t], state)
            parts.append(out[:, None])
        assert_close(torch.cat(parts, 1), full, **EXACT)


@sweep(STREAMS)
def test_streams_with_padding(case):
    """Prompts of different lengths, then common steps: each stream as if it were alone."""
    layer, x, more = case.make(), sequences(), sequences(5, length=3)
    _, state = layer.prefill(x, key_padding_mask=IGNORE)
    for t in range(3):
        out, state = layer.step(more[:, t], state)
        for i, n in enumerate(LENGTHS):
            alone, _ = layer(torch.cat([x[i, :n], more[i, : t + 1]])[None])
            assert_close(out[i], alone[0, -1], **EXACT)


@sweep(STREAMS)
def test_stream_of_length_first(case):
    x = sequences()
    expected, _ = case.make()(x)
    layer = case.make(batch_first=False)
    out, state = layer.prefill(x[:, :-1].transpose(0, 1))
    assert_close(out.transpose(0, 1), expected[:, :-1], **EXACT)
    for token in (x[:, -1], x[:, -1:].transpose(0, 1)):
        assert_close(layer.step(token, state)[0].squeeze(0), expected[:, -1], **EXACT)


# -- gradients -------------------------------------------------------------------------------------


def run(layer: nn.Module, x: Tensor, **masks: Tensor) -> list[Tensor]:
    """Output and every gradient; a parameter that took no part has gradient zero."""
    x = x.clone().requires_grad_()
    layer.zero_grad()
    out, _ = layer(x, **masks)
    out.sin().sum().backward()
    leaves = [x, *layer.parameters()]
    return [out.detach(), *(torch.zeros_like(p) if p.grad is None else p.grad for p in leaves)]


@sweep(ALL)
def test_gradients_are_finite_and_reach_the_input(case):
    layer, x = case.make(), sequences()
    ignore = IGNORE.clone()
    ignore[2] = True  # a sample without any valid position
    for training in (False, True):
        results = run(layer.train(training), x, key_padding_mask=ignore)
        assert all(r.isfinite().all() for r in results)
        out, grad, *parameters = results
        assert (out[ignore] == 0).all()
        assert (grad[ignore] == 0).all()
        assert (grad[~ignore] != 0).any(-1).all()
        assert any(p.abs().max() > 0 for p in parameters)


@sweep(ALL)
def test_what_stands_in_ignored_positions_does_not_matter(case):
    layer, x = case.make(), sequences()
    poisoned = x.masked_fill(IGNORE[..., None], torch.nan)
    for training in (False, True):
        clean = run(layer.train(training), x, key_padding_mask=IGNORE)
        for a, b in zip(clean, run(layer, poisoned, key_padding_mask=IGNORE), strict=True):
            assert_close(a, b, **EXACT)


@sweep(ALL)
def test_half_precision_has_finite_gradients(case):
    ignore = IGNORE.clone()
    ignore[2] = True
    for dtype in (torch.float16, torch.bfloat16):
        layer, x = case.make(dtype=dtype).train(), sequences().to(dtype)
        for name, parameter in layer.named_parameters():
            if name.endswith("bias"):  # as a layer starts: then hidden rows are zero
                nn.init.zeros_(parameter)
        results = run(layer, x.masked_fill(ignore[..., None], torch.nan), key_padding_mask=ignore)
        assert all(r.isfinite().all() for r in results)


@sweep(ALL)
def test_nan_in_a_valid_position_is_not_hidden(case):
    layer, x = case.make(), sequences()
    x[1, 4] = torch.nan
    out, _ = layer(x, key_padding_mask=IGNORE)
    assert out[1, 4].isnan().all()


@sweep(ALL)
def test_gradient_of_the_input_is_the_derivative(case):
    layer, x = case.make(), sequences(length=4)[:2]
    ignore = torch.tensor([[False, False, False, False], [False, False, True, True]])
    direction, step = draw(*x.shape, seed=7), 1e-6
    gradient = run(layer, x, key_padding_mask=ignore)[1]

    def loss(at: Tensor) -> Tensor:
        return layer(at, key_padding_mask=ignore)[0].sin().sum()

    with torch.no_grad():
        change = (loss(x + step * direction) - loss(x - step * direction)) / (2 * step)
    assert_close((gradient * direction).sum(), change, rtol=1e-6, atol=1e-6)


# -- as a module -----------------------------------------------------------------------------------


@sweep(ALL)
def test_state_dict_round_trip(case):
    layer, other, x = case.make(seed=1), case.make(seed=2), sequences()
    assert not torch.equal(layer(x)[0], other(x)[0])
    other.load_state_dict(layer.state_dict())
    assert torch.equal(layer(x)[0], other(x)[0])


@sweep(ALL)
def test_deepcopy(case):
    layer, x = case.make(), sequences()
    before, _ = layer(x)
    layer.train()(x)  # what a forward in training remembers must not hinder
    copied = deepcopy(layer).eval()
    assert torch.equal(copied(x)[0], before)
    with torch.no_grad():
        for parameter in copied.parameters():
            parameter.add_(1.0)
    assert not torch.equal(copied(x)[0], before)
    assert torch.equal(layer.eval()(x)[0], before)


@sweep(ALL)
def test_a_seed_determines_everything(case):
    dropout = {"dropout": 0.3} if "dropout" in attention_info(case.name).options else {}
    x = sequences()
    results = []
    for _ in range(2):
        layer = case.make(seed=5, **dropout).train()
        torch.manual_seed(6)
        results.append(run(layer, x, key_padding_mask=IGNORE))
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)
    if dropout:
        assert not torch.equal(run(layer, x, key_padding_mask=IGNORE)[0], results[0][0])


@sweep(ALL)
def test_reset_parameters_sets_all_of_them(case):
    """After to_empty the memory holds anything."""
    layer = make_attention(case.name, WIDTH, HEADS, **case.options)
    if not hasattr(layer, "reset_parameters"):
        pytest.skip("no reset_parameters: its parameters are those of its parts")
    for parameter in layer.parameters():
        nn.init.constant_(parameter, torch.nan)
    layer.reset_parameters()
    assert all(p.isfinite().all() for p in layer.parameters())


def sweep_of_graphs(chosen: list[Case], form: int, padded: bool) -> Any:
    """Tracing takes a second: primal and linear layers are traced in one form, `linear` once, and
    everything else is slow."""
    forms: dict[str, list[Case]] = {}
    for case in chosen:
        forms.setdefault(case.name, []).append(case)
    cells = []
    for case, mask in product(chosen, (False, True)):
        turn = case.name == "primal" or (case.name == "linear" and form == 0)
        quick = turn and case == forms[case.name][form] and mask is padded
        marks = () if quick else pytest.mark.slow
        cells.append(pytest.param(case, mask, marks=marks, id=f"{case}-padded={mask}"))
    return pytest.mark.parametrize(("case", "padded"), cells)


@sweep_of_graphs(ALL, form=-1, padded=True)
def test_compile(case, padded):
    """In training, with gradients; evaluation is traced by the exports below, and the other kinds
    of primal layers are compiled in tests/theory/loss."""
    torch._dynamo.reset()
    layer, x = case.make().train(), sequences()
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    masks = {"key_padding_mask": IGNORE} if padded else {}
    for a, b in zip(run(layer, x, **masks), run(compiled, x, **masks), strict=True):
        assert_close(a, b, **EXACT)


@sweep(ALL)
def test_an_empty_batch(case):
    layer, x = case.make(), sequences()[:0]
    for training, ignore in product((False, True), (None, IGNORE[:0])):
        layer.train(training)
        assert layer(x, key_padding_mask=ignore)[0].shape == (0, LENGTH, WIDTH)
        with torch.no_grad():
            assert layer(x, key_padding_mask=ignore)[0].shape == (0, LENGTH, WIDTH)


def serves_every_length(case: Case) -> bool:
    """Causal tied layers do too, if the batch is dynamic as well: see tests/deployment."""
    if case.name == "primal":
        return not (case.causal and case.options["weights"] == "tied")
    if case.name == "lka":
        return not case.options.get("deformable")  # which does too, in a graph that takes its time
    return case.name in ("softmax", "soft") or case.options.get("residual_width", 0) is None


@sweep_of_graphs([case for case in ALL if not serves_every_length(case)], form=0, padded=False)
def test_export(case, padded):
    """A graph of a fixed size, where one cannot serve every size; padding is compiled above."""
    layer, x = case.make(), sequences()
    masks = {"key_padding_mask": IGNORE} if padded else {}
    program = torch.export.export(layer, (x,), masks).module()
    other = sequences(4)
    assert_close(program(other, **masks)[0], layer(other, **masks)[0], **EXACT)


def exports_of_any_length() -> list[Case]:
    """But for those that are exported with a dynamic batch as well: softmax layers in
    test_softmax.py, primal layers with their usual features in tests/deployment."""
    usual = [case for case in ALL if case.name == "primal" and "feature_map" not in case.options]
    found = [case for case in filter(serves_every_length, ALL) if case not in usual]
    return [case for case in found if case.name != "softmax"]


@sweep_of_graphs(exports_of_any_length(), form=0, padded=True)
def test_export_with_a_dynamic_length(case, padded):
    def call(length):
        x = torch.randn(BATCH, length, WIDTH, dtype=torch.float64)
        ignore = torch.arange(length) >= torch.tensor([[length], [length - 2], [2]])
        return (x,), {"key_padding_mask": ignore} if padded else {}

    layer, (args, masks) = case.make(), call(150)
    shapes = {1: torch.export.Dim("length", min=5, max=4000)}
    dynamic = {"query": shapes} | dict.fromkeys(masks, shapes)
    program = torch.export.export(layer, args, masks, dynamic_shapes=dynamic).module()
    for length in (5, 33, 300):
        args, masks = call(length)
        assert_close(program(*args, **masks)[0], layer(*args, **masks)[0], **EXACT)


@pytest.mark.slow
@sweep(ALL)
def test_export_with_a_dynamic_batch(case):
    layer, batch = case.make(), {0: torch.export.Dim("batch")}
    masks = {"key_padding_mask": IGNORE}
    shapes = {"query": batch, "key_padding_mask": batch}
    program = torch.export.export(layer, (sequences(),), masks, dynamic_shapes=shapes).module()
    for size in (1, 2, 7):
        other, ignore = draw(size, LENGTH, WIDTH, seed=size), draw(size, LENGTH, seed=9) > 1
        expected, _ = layer(other, key_padding_mask=ignore)
        assert_close(program(other, key_padding_mask=ignore)[0], expected, **EXACT)


@sweep(ALL)
def test_in_torchs_encoder_layer(case):
    """In evaluation too, where torch has a fused path that knows only its own softmax."""
    torch.manual_seed(0)
    block = nn.TransformerEncoderLayer(  # the fused path wants an even number of heads
        WIDTH, 4, 16, dropout=0.0, batch_first=True, norm_first=True, dtype=torch.float64
    )
    block.self_attn = case.make(heads=4)
    block.eval()
    x = sequences()
    with torch.no_grad():
        out = block(x, src_key_padding_mask=IGNORE)
        inner = x + block.self_attn(block.norm1(x), key_padding_mask=IGNORE)[0]
        expected = inner + block._ff_block(block.norm2(inner))
    assert_close(out, expected, **EXACT)
