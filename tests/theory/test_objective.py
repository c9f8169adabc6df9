import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from primal_attention.theory import energy, gram_energy, objective, trace_term

EXACT = {"rtol": 1e-12, "atol": 1e-12}


def test_energy_is_the_sum_of_quadratic_forms(randn):
    scores, root = randn(2, 3, 5, 4), randn(3, 4)
    found = energy(scores, root)
    assert found.shape == (2, 3)
    for b in range(2):
        for h in range(3):
            lam = torch.diag(root[h] ** 2)
            expected = sum(e @ lam @ e for e in scores[b, h])
            assert_close(found[b, h], expected, **EXACT)


def test_energy_of_valid_positions_only(randn):
    scores, root = randn(2, 3, 5, 4), randn(3, 4)
    valid = torch.tensor([[1, 1, 1, 0, 0], [1, 0, 1, 1, 1]], dtype=torch.bool)
    poisoned = torch.where(valid[:, None, :, None], scores, torch.nan)
    found = energy(poisoned, root, valid[:, None])
    assert_close(found[0], energy(scores[0, :, :3], root), **EXACT)
    assert_close(found[1], energy(scores[1][:, [0, 2, 3, 4]], root), **EXACT)


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 9), p=st.integers(1, 6), s=st.integers(1, 5), seed=st.integers(0, 10_000))
def test_gram_form_is_the_direct_form(n, p, s, seed):
    generator = torch.Generator().manual_seed(seed)
    phi, w, root = (
        torch.randn(*shape, generator=generator, dtype=torch.float64)
        for shape in ((2, n, p), (2, p, s), (2, s))
    )
    found = gram_energy(phi.mT @ phi, w, root)
    assert_close(found, energy(phi @ w, root), rtol=1e-10, atol=1e-12)


def test_trace_term(randn):
    w_e, w_r = randn(3, 4, 2), randn(3, 4, 2)
    expected = torch.stack([torch.trace(a.T @ b) for a, b in zip(w_e, w_r, strict=True)])
    assert_close(trace_term(w_e, w_r), expected, **EXACT)


def test_objective_sum_and_mean(randn):
    e, r, t = randn(2, 3), randn(2, 3), randn(3)
    assert_close(objective(e, r, t, positions="sum"), e / 2 + r / 2 - t, **EXACT)
    assert_close(objective(e, r, t, count_e=5, count_r=4), e / 10 + r / 8 - t, **EXACT)
    counts = torch.tensor([[5], [2]])
    expected = e / (2 * counts) + r / 8 - t
    assert_close(objective(e, r, t, count_e=counts, count_r=4), expected, **EXACT)


@pytest.mark.parametrize("zero", [0, torch.tensor(0)])
def test_no_positions_contribute_nothing(zero, randn):
    scores = randn(4, 2).requires_grad_()
    none = energy(scores, randn(2), torch.zeros(4, dtype=torch.bool))
    t = randn()
    j = objective(none, none, t, count_e=zero, count_r=zero)
    assert_close(j, -t, **EXACT)
    (j + scores.sum()).backward()
    assert (scores.grad == 1).all()  # nothing from J, and no NaN


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_inputs_accumulate_in_float32(dtype):
    scores = torch.ones(4096, 40, dtype=dtype)  # the sum overflows float16, stalls in bfloat16
    root = torch.ones(40, dtype=dtype)
    assert energy(scores, root).item() == 4096 * 40
    gram = torch.full((1, 1), 60_000.0, dtype=dtype)
    row = torch.full((1, 40), 2.0, dtype=dtype)
    assert gram_energy(gram, row, root).item() == 160 * gram.item()
    square = torch.ones(512, 512, dtype=dtype)
    assert trace_term(square, square).item() == 512 * 512


def test_gram_form_ignores_autocast(randn):
    phi, w, root = (randn(*shape, dtype=torch.float32) for shape in ((30, 6), (6, 3), (3,)))
    gram = phi.mT @ phi
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = gram_energy(gram, w, root)
    assert_close(inside, gram_energy(gram, w, root), rtol=1e-6, atol=0)


def test_gradient_of_the_objective(randn):
    phi_q, phi_k = randn(5, 3), randn(4, 3)
    valid = torch.tensor([True, True, False, True, True])

    def j(w_e, w_r, root):
        return objective(
            energy(phi_q @ w_e, root, valid),
            gram_energy(phi_k.mT @ phi_k, w_r, root),
            trace_term(w_e, w_r),
            count_e=valid.sum(),
            count_r=4,
        )

    inputs = tuple(x.requires_grad_() for x in (randn(3, 2), randn(3, 2), randn(2)))
    assert torch.autograd.gradcheck(j, inputs)


def test_bad_inputs(randn):
    e, root = randn(2, 5, 3), randn(3)
    with pytest.raises(
        ValueError, match="sqrt_lambda has 3 entries; expected one for each of the 2"
    ):
        energy(randn(5, 2), root)
    with pytest.raises(ValueError, match=r"dtype torch\.float64; expected torch\.bool"):
        energy(e, root, torch.ones(2, 5, dtype=torch.float64))
    for shape in ((5,), (2, 4), (2, 1), (3, 5)):
        with pytest.raises(ValueError, match=r"valid has shape .* expected \(2, 5\)"):
            energy(e, root, torch.ones(shape, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"gram has shape \(4, 4\).*p = 5"):
        gram_energy(randn(4, 4), randn(5, 3), root)
    with pytest.raises(ValueError, match="expected the same"):
        trace_term(randn(4, 2), randn(4, 3))
    one = randn()
    with pytest.raises(ValueError, match="'median'"):
        objective(one, one, one, positions="median")
    with pytest.raises(ValueError, match="count_r is None"):
        objective(one, one, one, count_e=3)
    with pytest.raises(ValueError, match="expects none"):
        objective(one, one, one, count_e=3, count_r=3, positions="sum")
