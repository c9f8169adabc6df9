"""The terms of J and their gradient in closed form."""

import pytest
import torch
from torch.testing import assert_close

from primal_attention.theory.entry import Entry, Parts
from primal_attention.theory.ledger import Ledger

EXACT = {"rtol": 1e-12, "atol": 1e-15}


@pytest.fixture(params=["fixed", "tied"])
def parts(request, randn):
    energy, sqrt_lambda = randn(3, 2, 2, 4).square(), randn(2, 4)
    if request.param == "tied":
        made = Parts(energy, sqrt_lambda, randn(3, 2, 2, 4, 5), None)
    else:
        made = Parts(energy, sqrt_lambda, randn(2, 5, 4), randn(2, 5, 4))
    return Parts(*(None if part is None else part.requires_grad_() for part in made))


def given(parts):
    return [part for part in parts if part is not None]


def test_terms_sample_by_sample(parts):
    lam = parts.sqrt_lambda.square()
    w_e, w_r = (parts.w_e, parts.w_r) if parts.w_r is not None else (None, None)
    terms = parts.terms()
    for b in range(3):
        of = (parts.w_e[b, 0], parts.w_e[b, 1]) if w_e is None else (w_e, w_r)
        for head in range(2):
            for side in range(2):
                assert_close(terms[side, b, head], parts.energy[b, side, head] @ lam[head], **EXACT)
            trace = torch.trace(of[0][head].T @ of[1][head])
            assert_close(terms[2, b, head], trace, **EXACT)


def test_the_gradient_is_that_of_the_plain_expression(parts, randn):
    g = randn(3, 3, 2)
    expected = torch.autograd.grad(parts.terms(), given(parts), g)
    assert_close([d for d in parts.gradient(g) if d is not None], list(expected), **EXACT)


def test_a_recorded_forward_is_one_node(parts, randn):
    out, ledger = randn(3, 6, 8).requires_grad_(), Ledger()
    joined = ledger.record(out * 1.0, parts, 6, 6)
    (entry,) = ledger.entries
    assert entry.terms.grad_fn is joined.grad_fn
    assert_close(entry.terms, parts.terms(), rtol=0.0, atol=0.0)
    reached = [f.variable for f, _ in joined.grad_fn.next_functions[1:] if f is not None]
    assert all(found is part for found, part in zip(reached, given(parts), strict=True))


def test_first_and_second_derivatives_of_a_recorded_forward(parts, randn):
    out = randn(3, 6, 8).requires_grad_()

    def run(out, *tensors):
        ledger = Ledger()
        joined = ledger.record(out, Parts(*tensors, *[None] * (4 - len(tensors))), 6, 6)
        return joined, ledger.entries[0].terms

    assert torch.autograd.gradcheck(run, [out, *given(parts)])
    assert torch.autograd.gradgradcheck(run, [out, *given(parts)], fast_mode=True)


def test_types_of_parameters_are_kept(parts, randn):
    narrow = [parts.energy.float().detach(), *(p.detach().bfloat16() for p in given(parts)[1:])]
    narrow = [part.requires_grad_() for part in narrow]
    made = Parts(*narrow, *[None] * (4 - len(narrow)))
    g = randn(3, 3, 2).float()
    found = [d for d in made.gradient(g) if d is not None]
    assert [d.dtype for d in found] == [part.dtype for part in narrow]
    assert_close(found, list(torch.autograd.grad(made.terms(), narrow, g)), rtol=1e-2, atol=1e-6)


def test_a_common_count_is_one_for_every_sample(randn):
    terms, counts = randn(3, 2, 2), torch.tensor([5, 5])
    one, each = Entry(terms, 5, 7), Entry(terms, counts, counts + 2)
    assert torch.equal(one.objectives(), each.objectives())
    assert torch.equal(one.present(), each.present())
    assert all(torch.equal(a, b) for a, b in zip(one.counts(), each.counts(), strict=True))
    assert not Entry(terms, 0, 7).present().any()
