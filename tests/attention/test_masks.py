"""Masks and the arguments of a call: what is accepted, and what the refusals say."""

import pytest
import torch

from primal_attention.attention.inputs import Sequences, arrange
from primal_attention.attention.masks import check_attention_mask, padding_mask

INF = torch.inf
FUTURE = torch.ones(4, 4, dtype=torch.bool).triu(1)


def as_float(hidden: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(hidden.shape, dtype=dtype).masked_fill(hidden, -INF)


# -- key padding -----------------------------------------------------------------------------------


def test_no_padding_mask():
    assert padding_mask(None, 2, 3, batched=True) is None


def test_a_bool_mask_is_taken_as_it_is():
    mask = torch.tensor([[False, True, True], [False, False, False]])
    assert padding_mask(mask, 2, 3, batched=True) is mask


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_a_float_mask_means_the_same(dtype):
    mask = torch.tensor([[False, True, True], [False, False, True]])
    out = padding_mask(as_float(mask, dtype), 2, 3, batched=True)
    assert out.dtype == torch.bool
    assert torch.equal(out, mask)


def test_the_mask_of_one_sequence_gets_a_batch():
    mask = torch.tensor([False, True, True])
    for form in (mask, as_float(mask)):
        assert torch.equal(padding_mask(form, 1, 3, batched=False), mask[None])


@pytest.mark.parametrize(
    ("shape", "batched", "expected"),
    [
        ((3, 2), True, r"\(3, 2\); expected \(2, 3\)"),
        ((3,), True, r"\(3,\); expected \(2, 3\)"),
        ((2, 3, 1), True, r"\(2, 3, 1\); expected \(2, 3\)"),
        ((2, 3), False, r"\(2, 3\); expected \(3,\)"),
        ((4,), False, r"\(4,\); expected \(3,\)"),
    ],
)
def test_shape_of_a_padding_mask(shape, batched, expected):
    with pytest.raises(ValueError, match=f"key_padding_mask has shape {expected}"):
        padding_mask(torch.zeros(shape, dtype=torch.bool), 2, 3, batched=batched)


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.complex64])
def test_type_of_a_padding_mask(dtype):
    with pytest.raises(TypeError, match=f"has dtype {dtype}; expected torch.bool .* floating type"):
        padding_mask(torch.zeros(2, 3, dtype=dtype), 2, 3, batched=True)


@pytest.mark.parametrize("value", [-1e9, 1.0, INF, float("nan")])
def test_a_finite_bias_for_a_key_is_refused(value):
    mask = torch.tensor([[0.0, -INF, 0.0], [0.0, value, 0.0]])
    with pytest.raises(
        ValueError, match=rf"key_padding_mask holds {value}.*expected only 0 .* -in"
    ):
        padding_mask(mask, 2, 3, batched=True)


def test_a_compiled_graph_does_not_look_at_the_values():
    def run(mask):
        return padding_mask(mask, 2, 3, batched=True)

    torch._dynamo.reset()
    mask = torch.tensor([[0.0, -INF, 0.0], [0.0, 0.0, -INF]])
    compiled = torch.compile(run, fullgraph=True, backend="eager")
    assert torch.equal(compiled(mask), run(mask))


# -- pairs -----------------------------------------------------------------------------------------


def check(attn_mask=None, is_causal=False, *, causal, queries=4, keys=4):
    shape = (6, queries, keys)
    check_attention_mask(attn_mask, is_causal, causal=causal, shape=shape)


@pytest.mark.parametrize("causal", [False, True])
def test_no_attention_mask(causal):
    check(causal=causal)
    check(is_causal=causal, causal=causal)


def test_is_causal_needs_a_causal_layer():
    for mask in (None, FUTURE):
        with pytest.raises(ValueError, match=r"is_causal=True .* expected .* causal=True"):
            check(mask, True, causal=False)


@pytest.mark.parametrize("heads", [(), (6,)])
def test_masks_that_change_nothing_are_accepted(heads):
    nothing = torch.zeros(*heads, 4, 4, dtype=torch.bool)
    for mask in (nothing, as_float(nothing)):
        check(mask, causal=False)
    future = FUTURE.expand(*heads, 4, 4)
    for mask in (future, as_float(future)):
        check(mask, causal=True)


def test_is_causal_vouches_for_the_mask():
    check(as_float(FUTURE), True, causal=True)
    check(torch.zeros(1, 1), True, causal=True)  # not even looked at


def test_a_mask_of_cross_attention():
    check(torch.zeros(4, 5, dtype=torch.bool), causal=False, keys=5)
    with pytest.raises(ValueError, match="attn_mask hides or weights single pairs"):
        check(torch.ones(4, 5, dtype=torch.bool), causal=False, keys=5)


@pytest.mark.parametrize("shape", [(4, 3), (3, 4), (2, 4, 5), (4,)])
def test_shape_of_an_attention_mask(shape):
    expected = (
        rf"attn_mask has shape \({shape[0]},.*\); expected \(4, 4\) or \(batch \* num_heads = 6, 4"
    )
    with pytest.raises(ValueError, match=expected):
        check(torch.zeros(shape, dtype=torch.bool), causal=False)


OTHER = {
    "hides a pair": (torch.eye(4, dtype=torch.bool), False),
    "causal for a layer that is not": (FUTURE, False),
    "float causal for a layer that is not": (as_float(FUTURE), False),
    "nothing hidden in a causal layer": (torch.zeros(4, 4, dtype=torch.bool), True),
    "zeros in a causal layer": (torch.zeros(4, 4), True),
    "the past hidden": (FUTURE.T, True),
    "a finite bias": (torch.zeros(4, 4).fill_diagonal_(0.5), False),
    "a finite bias in a causal layer": (as_float(FUTURE) + torch.eye(4), True),
    "NaN": (torch.full((4, 4), torch.nan), False),
    "one head hides a pair": (torch.stack([FUTURE] * 5 + [FUTURE | torch.eye(4).bool()]), True),
}


@pytest.mark.parametrize(("mask", "causal"), OTHER.values(), ids=OTHER.keys())
def test_other_masks_are_refused(mask, causal):
    expected = "the causal mask" if causal else "None or a mask that hides nothing"
    with pytest.raises(ValueError, match=rf"N x N matrix.*expected {expected} \(causal={causal}\)"):
        check(mask, causal=causal)


def test_a_compiled_graph_cannot_inspect_a_mask(monkeypatch):
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    check(FUTURE, True, causal=True)
    with pytest.raises(ValueError, match=r"cannot be inspected .*; expected None, or is_causal=T"):
        check(FUTURE, causal=True)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64])
def test_type_of_an_attention_mask(dtype):
    with pytest.raises((TypeError, ValueError), match=f"attn_mask has dtype {dtype}; expected"):
        check(torch.ones(4, 4, dtype=dtype), causal=False)


# -- the sequences of a call -----------------------------------------------------------------------


def call(query, key=None, value=None, mask=None, *, batch_first=True, has_values=True):
    return arrange(
        query, key, value, mask,
        embed_dim=6, dtype=torch.float32, batch_first=batch_first, has_values=has_values,
    )  # fmt: skip


def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


def test_key_and_value_default_to_the_query():
    x = zeros(2, 3, 6)
    for arguments in ((x,), (x, x), (x, x, x), (x, None, x)):
        got, values = call(*arguments, has_values=False)
        assert isinstance(got, Sequences)
        assert got.x is x
        assert got.is_self
        assert values is got.y
        assert got.ignore is None


def test_value_defaults_to_the_key():
    x, y = zeros(2, 3, 6), zeros(2, 5, 6)
    got, values = call(x, y)
    assert not got.is_self
    assert got.x is x
    assert got.y is y
    assert values is y


def test_values_apart():
    x, y, v = zeros(2, 3, 6), zeros(2, 3, 6), zeros(2, 3, 6)
    assert call(x, x, v)[1] is v
    assert call(x, y, v)[1] is v
    assert call(x, y, x)[1] is x
    for key, value in ((x, v), (y, v), (y, x)):
        with pytest.raises(ValueError, match=r"value differs from key; .* expected value to"):
            call(x, key, value, has_values=False)


@pytest.mark.parametrize("same", [True, False])
def test_one_sequence(same):
    x = torch.randn(3, 6)
    y = x if same else torch.randn(5, 6)
    mask = torch.zeros(len(y), dtype=torch.bool)
    mask[-1] = True
    got, values = call(x, y, None, mask, batch_first=False)  # no batch: the order means nothing
    assert got.x.shape == (1, 3, 6)
    assert got.is_self == same
    assert values is got.y
    assert torch.equal(got.ignore, mask[None])
    assert torch.equal(got.restore(got.x), x)


def test_length_first():
    x, y, v = torch.randn(3, 2, 6), torch.randn(5, 2, 6), torch.randn(5, 2, 6)
    got, values = call(x, y, v, torch.zeros(2, 5), batch_first=False)
    assert torch.equal(got.x, x.transpose(0, 1))
    assert torch.equal(got.y, y.transpose(0, 1))
    assert torch.equal(values, v.transpose(0, 1))
    assert torch.equal(got.restore(got.x), x)
    assert call(x, x, batch_first=False)[0].is_self
    got, values = call(x, torch.randn(3, 2, 6), x, batch_first=False)
    assert values is got.x


def test_restore_leaves_batch_first_alone():
    x = torch.randn(2, 3, 6)
    assert call(x)[0].restore(x) is x


BAD = {
    "query shape": ((zeros(6),), r"query has shape \(6,\); expected \(batch, length, 6\), or \(le"),
    "query 4-D": ((zeros(1, 2, 3, 6),), r"query has shape \(1, 2, 3, 6\); expected"),
    "key dims": ((zeros(2, 3, 6), zeros(3, 6)), "key has 2 dimensions; expected 3, as query"),
    "value dims": (
        (zeros(3, 6), zeros(3, 6), zeros(2, 3, 6)),
        "value has 3 dimensions; expected 2, as query",
    ),
    "query width": ((zeros(2, 3, 5),), "query has width 5; expected embed_dim = 6"),
    "key width": ((zeros(2, 3, 6), zeros(2, 3, 7)), "key has width 7; expected embed_dim = 6"),
    "query dtype": (
        (zeros(2, 3, 6, dtype=torch.float64),),
        "query has dtype torch.float64; expected torch.float32, as the layer",
    ),
    "value dtype": (
        (zeros(2, 3, 6), zeros(2, 3, 6), zeros(2, 3, 6, dtype=torch.float16)),
        "value has dtype torch.float16; expected torch.float32",
    ),
    "key batch": ((zeros(2, 3, 6), zeros(4, 3, 6)), "key has batch size 4; expected 2, as query"),
    "value length": (
        (zeros(2, 3, 6), zeros(2, 4, 6), zeros(2, 5, 6)),
        r"value has \(batch, length\) \(2, 5\); expected \(2, 4\), as key",
    ),
    "no query": ((zeros(2, 0, 6),), "query has length 0; expected at least one position"),
    "no key": ((zeros(2, 3, 6), zeros(2, 0, 6)), "key has length 0; expected at least one"),
    "mask": ((zeros(2, 3, 6), None, None, zeros(2, 4)), r"\(2, 4\); expected \(2, 3\)"),
    "mask of keys": (
        (zeros(2, 3, 6), zeros(2, 5, 6), None, zeros(2, 3)),
        r"key_padding_mask has shape \(2, 3\); expected \(2, 5\)",
    ),
}


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD.keys())
def test_bad_sequences(arguments, message):
    with pytest.raises(ValueError, match=message):
        call(*arguments)


def test_length_first_messages_speak_of_batches():
    with pytest.raises(ValueError, match="key has batch size 4; expected 2"):
        call(zeros(3, 2, 6), zeros(3, 4, 6), batch_first=False)


def test_autocast_takes_other_types():
    x = zeros(2, 3, 6, dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        assert call(x)[0].x is x
    with pytest.raises(ValueError, match=r"expected torch\.float32"):
        call(x)
