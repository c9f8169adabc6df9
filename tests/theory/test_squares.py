"""The KSVD loss in few operations against the plain expression."""

import pytest
import torch
from torch.testing import assert_close

from primal_attention.theory.entry import Entry
from primal_attention.theory.squares import plain_sum_of_squares, sum_of_squares

EXACT = {"rtol": 1e-12, "atol": 0.0}


@pytest.fixture
def make_entry(randn):
    """An entry of some batch and heads; counts by sample, or a number for all."""

    def make(batch=3, heads=2, count_e=5, count_r=None, dtype=torch.float64):
        terms = randn(3, batch, heads).to(dtype).requires_grad_()
        count_e = torch.tensor(count_e) if isinstance(count_e, list) else count_e
        count_r = torch.tensor(count_r) if isinstance(count_r, list) else count_r
        return Entry(terms, count_e, count_e if count_r is None else count_r)

    return make


@pytest.fixture(
    params=[
        [{}],
        [{}, {}, {}],
        [{"count_r": 7}, {"count_r": 7}],
        [{"count_e": [4, 0, 2]}, {"count_e": [1, 2, 3]}],
        [
            {"count_e": [4, 1, 2], "count_r": [3, 2, 0]},
            {"count_e": [4, 1, 2], "count_r": [9, 9, 9]},
        ],
        [{}, {"heads": 4}, {"batch": 1}, {"count_e": [1, 2, 3]}, {"count_e": 0}],
        [{"count_e": [0, 0, 0]}],
        [{"batch": 0}],
    ],
    ids=["one", "three", "cross", "masks", "cross masks", "shapes", "all masked", "empty"],
)
def layers(request, make_entry):
    return [make_entry(**options) for options in request.param]


def terms_of(layers):
    return [entry.terms for entry in layers]


@pytest.mark.parametrize("positions", ["mean", "sum"])
@pytest.mark.parametrize("share", [1.0, 0.3])
def test_values_and_gradients_are_those_of_the_plain_expression(layers, positions, share):
    found = sum_of_squares(layers, positions, share)
    expected = plain_sum_of_squares(layers, positions, share)
    assert_close(found, expected, **EXACT)
    ours = torch.autograd.grad(3.0 * found, terms_of(layers))
    theirs = torch.autograd.grad(3.0 * expected, terms_of(layers))
    assert_close(ours, theirs, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("positions", ["mean", "sum"])
def test_first_and_second_derivatives_are_those_of_finite_differences(layers, positions):
    def loss(*terms):
        entries = [entry._replace(terms=t) for entry, t in zip(layers, terms, strict=True)]
        return sum_of_squares(entries, positions, 0.5)

    assert torch.autograd.gradcheck(loss, terms_of(layers))
    assert torch.autograd.gradgradcheck(loss, terms_of(layers))


def test_layers_of_one_shape_share_their_operations(make_entry):
    def nodes(count):
        found = [sum_of_squares([make_entry() for _ in range(count)], "mean", 1.0).grad_fn]
        for node in found:
            inner = (f for f, _ in node.next_functions if f is not None)
            found += [f for f in inner if not hasattr(f, "variable") and f not in found]
        return len(found)

    assert nodes(4) == nodes(12) <= 6


def test_a_sample_without_positions_may_hold_anything(make_entry):
    entry = make_entry(count_e=[2, 0, 3])
    broken = entry.terms.detach().clone()
    broken[:, 1] = torch.nan
    broken.requires_grad_()
    loss = sum_of_squares([entry._replace(terms=broken)], "mean", 1.0)
    assert_close(loss, plain_sum_of_squares([entry], "mean", 1.0), **EXACT)
    loss.backward()
    assert broken.grad.isfinite().all()


def test_types_may_differ(make_entry):
    layers = [make_entry(), make_entry(dtype=torch.float32)]
    found = sum_of_squares(layers, "mean", 1.0)
    assert found.dtype == torch.float64
    assert_close(found, plain_sum_of_squares(layers, "mean", 1.0), rtol=1e-6, atol=0.0)
    found.backward()
    assert layers[1].terms.grad.dtype == torch.float32


def test_a_batch_of_gradients(make_entry):
    layers = [make_entry(), make_entry()]
    loss, weights = sum_of_squares(layers, "mean", 1.0), torch.tensor([1.0, -2.0]).double()
    found = torch.autograd.grad(
        loss, terms_of(layers), weights, is_grads_batched=True, retain_graph=True
    )
    once = torch.autograd.grad(loss, terms_of(layers))
    assert_close([f[1] for f in found], [-2.0 * g for g in once], **EXACT)
