"""Masks of other libraries: translated exactly, or refused."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from primal_attention.adapters.masks import hidden_pairs, ignored_keys, union

B, N = 2, 5
FUTURE = torch.ones(N, N, dtype=torch.bool).triu(1)
IGNORE = torch.tensor([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]]).bool()  # padding on the right
LEFT = IGNORE.flip(1)


def translate(hidden, causal=False, queries=N, keys=N, cross=False):
    return ignored_keys(hidden, batch=B, queries=queries, keys=keys, causal=causal, cross=cross)


@pytest.mark.parametrize(
    ("mask", "true_means"),
    [
        (torch.tensor([True, False]), "hidden"),
        (torch.tensor([False, True]), "visible"),
        (torch.tensor([-torch.inf, 0.0]), "hidden"),
        (torch.tensor([torch.finfo(torch.float32).min, 0.0]), "visible"),
        (torch.tensor([-10_000.0, 0.0]), "visible"),
        (torch.tensor([1, 0]), "hidden"),
        (torch.tensor([0, 1]), "visible"),
    ],
)
def test_every_convention_says_the_same(mask, true_means):
    assert hidden_pairs(mask, true_means=true_means).tolist() == [True, False]


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.tensor([0.0, -1.5]), "adds a finite number"),
        (torch.tensor([0.0, torch.nan]), "adds a finite number"),
        (torch.tensor([0, 2]), "other numbers than 0 and 1"),
    ],
)
def test_a_bias_is_refused(mask, message):
    with pytest.raises(ValueError, match=message):
        hidden_pairs(mask, true_means="hidden")


def test_a_mask_that_is_no_tensor_is_refused():
    with pytest.raises(TypeError, match="list"):
        hidden_pairs([True], true_means="hidden")


def test_no_mask_ignores_nothing():
    assert translate(None) is None


@pytest.mark.parametrize("rows", [1, N])
@pytest.mark.parametrize("heads", [1, 3])
def test_hidden_keys(rows, heads):
    hidden = IGNORE[:, None, None].expand(B, heads, rows, N)
    assert torch.equal(translate(hidden), IGNORE)


def test_one_mask_for_all_samples():
    hidden = IGNORE[:1, None, None].expand(1, 1, N, N)
    assert torch.equal(translate(hidden), IGNORE[:1].expand(B, N))


@pytest.mark.parametrize("ignore", [IGNORE, LEFT], ids=["right", "left"])
def test_causal_with_padding(ignore):
    hidden = (FUTURE | ignore[:, None])[:, None]
    assert torch.equal(translate(hidden, causal=True), ignore)


@pytest.mark.parametrize("ignore", [IGNORE, LEFT], ids=["right", "left"])
def test_rows_of_ignored_queries_may_hold_anything(ignore):
    hidden = (FUTURE | ignore[:, None])[:, None]
    for rows in (True, False):
        strange = torch.where(ignore[:, None, :, None], rows, hidden) | ignore[:, None, None]
        assert torch.equal(translate(strange, causal=True), ignore)


def test_a_past():
    past = 3
    ignore = torch.zeros(B, past + 2, dtype=torch.bool)
    ignore[0, :2] = True
    future = torch.ones(2, past + 2, dtype=torch.bool).triu(past + 1)
    hidden = (future | ignore[:, None])[:, None]
    assert torch.equal(translate(hidden, True, queries=2, keys=past + 2), ignore)
    longer = torch.nn.functional.pad(hidden, (0, 4), value=True)  # a cache of fixed size
    assert torch.equal(translate(longer, True, queries=2, keys=past + 2), ignore)
    with pytest.raises(ValueError, match="beyond"):
        translate(torch.nn.functional.pad(hidden, (0, 4)), True, queries=2, keys=past + 2)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_one_pair_more_or_less_is_refused(data):
    """Change one entry of an honest mask: either an ignored query's row, or an error."""
    causal = data.draw(st.booleans())
    ignore = torch.tensor(data.draw(st.lists(st.booleans(), min_size=N, max_size=N)))
    hidden = ignore.expand(B, 1, N, N).clone()
    hidden |= FUTURE & causal
    i, j = data.draw(st.integers(0, N - 1)), data.draw(st.integers(0, N - 1))
    hidden[1, 0, i, j] ^= True
    try:
        found = translate(hidden, causal)
    except ValueError:
        return
    # what was accepted must mean the same to every query that is not ignored
    meant = found[:, None, None].expand(B, 1, N, N) | (FUTURE & causal)
    rows = ~found[:, None, :, None].expand(B, 1, N, N)
    assert torch.equal(meant & rows, hidden & rows)


@pytest.mark.parametrize(
    ("hidden", "causal", "message"),
    [
        (FUTURE[None, None], False, "single pairs"),
        (torch.zeros(1, 1, N, N, dtype=torch.bool), True, "future only in part"),
        (FUTURE.triu(2)[None, None], True, "future only in part"),
        ((FUTURE | FUTURE.tril(-3).T)[None, None].triu(3), True, "future only in part"),
        (torch.ones(N, N).tril(-3).bool()[None, None] | FUTURE, True, "single pairs"),  # a window
        (torch.stack([IGNORE, ~IGNORE], 1)[:, :, None], False, "between heads"),
        (torch.zeros(3, 1, N, N, dtype=torch.bool), False, "shape"),
        (torch.zeros(B, 1, 2, N, dtype=torch.bool), False, "shape"),
        (torch.zeros(N, N, dtype=torch.bool), False, "shape"),
    ],
)
def test_refused(hidden, causal, message):
    with pytest.raises(ValueError, match=message):
        translate(hidden, causal)


def test_cross_attention_has_no_rows_to_excuse():
    hidden = IGNORE[:, None, None].expand(B, 1, N, N).clone()
    hidden[0, 0, 4] = True  # the row of an ignored key, but of a query of another sequence
    assert torch.equal(translate(hidden), IGNORE)
    with pytest.raises(ValueError, match="single pairs"):
        translate(hidden, cross=True)


def test_union():
    assert union(None, None) is None
    assert torch.equal(union(IGNORE, None), IGNORE)
    assert torch.equal(union(IGNORE, LEFT), IGNORE | LEFT)
