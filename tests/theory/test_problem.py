import pytest
import torch
from torch.testing import assert_close

from primal_attention.theory import KSVDProblem, residuals_of

EXACT = {"rtol": 1e-11, "atol": 1e-11}


@pytest.fixture(params=[None, 6], ids=["F=I", "F"])
def pieces(request, randn):
    """A batch of two, three heads, weights shared over the batch."""
    n = request.param
    return {
        "phi_q": randn(2, 3, 7, 4),
        "phi_k": randn(2, 3, 5, 4),
        "w_e": randn(3, n or 4, 2),
        "w_r": randn(3, n or 4, 2),
        "sqrt_lambda": randn(3, 2),
        "f": None if n is None else randn(2, 3, n, 4),
    }


def test_scores_and_objective_by_hand(pieces):
    problem = KSVDProblem(**pieces)
    e, r = problem.scores()
    assert e.shape == (2, 3, 7, 2)
    assert r.shape == (2, 3, 5, 2)
    for b in range(2):
        for h in range(3):
            f = torch.eye(4).double() if pieces["f"] is None else pieces["f"][b, h]
            lam = torch.diag(pieces["sqrt_lambda"][h] ** 2)
            w_e, w_r = pieces["w_e"][h], pieces["w_r"][h]
            e_hand = [(f.T @ w_e).T @ x for x in pieces["phi_q"][b, h]]
            r_hand = [(f.T @ w_r).T @ x for x in pieces["phi_k"][b, h]]
            assert_close(e[b, h], torch.stack(e_hand), **EXACT)
            assert_close(r[b, h], torch.stack(r_hand), **EXACT)
            e_sum = sum(x @ lam @ x for x in e_hand)
            r_sum = sum(x @ lam @ x for x in r_hand)
            trace = torch.trace(w_e.T @ w_r)
            total, mean = problem.objective("sum")[b, h], problem.objective("mean")[b, h]
            assert_close(total, e_sum / 2 + r_sum / 2 - trace, **EXACT)
            assert_close(mean, e_sum / 14 + r_sum / 10 - trace, **EXACT)


def test_factors_are_the_induced_kernel(pieces):
    phi_q, phi_k, f = pieces["phi_q"], pieces["phi_k"], pieces["f"]
    expected = phi_q @ phi_k.mT if f is None else (phi_q @ f.mT) @ (phi_k @ f.mT).mT
    assert_close(KSVDProblem(**pieces).factors().dense(), expected, **EXACT)


def test_invalid_positions_are_absent(pieces):
    """Padded with NaN inside a batch: the same as each sequence alone."""
    valid_q = torch.ones(2, 1, 7, dtype=torch.bool)
    valid_k = torch.ones(2, 1, 5, dtype=torch.bool)
    valid_q[1, :, 4:] = False
    valid_k[1, :, 2:] = False
    pieces["phi_q"] = torch.where(valid_q.unsqueeze(-1), pieces["phi_q"], torch.nan)
    pieces["phi_k"] = torch.where(valid_k.unsqueeze(-1), pieces["phi_k"], torch.nan)
    padded = KSVDProblem(**pieces, valid_q=valid_q, valid_k=valid_k)
    own = {
        "phi_q": pieces["phi_q"][1, :, :4],
        "phi_k": pieces["phi_k"][1, :, :2],
        "f": None if pieces["f"] is None else pieces["f"][1],
    }
    alone = KSVDProblem(**(pieces | own))
    assert_close(padded.scores()[0][1, :, :4], alone.scores()[0], **EXACT)
    assert (padded.scores()[1][1, :, 2:] == 0).all()
    sigma = padded.factors().singular_values()[1, :, :2]
    assert_close(sigma, alone.factors().singular_values(), **EXACT)
    for positions in ("mean", "sum"):
        assert_close(padded.objective(positions)[1], alone.objective(positions), **EXACT)
        one, two = (residuals_of(x, positions=positions) for x in (padded, alone))
        for name in ("objective", "kkt_weights", "eigenproblem", "orthogonality"):
            assert_close(getattr(one, name)[1], getattr(two, name), **EXACT)


def test_a_sequence_without_any_position(pieces):
    nothing_q = torch.zeros(2, 1, 7, dtype=torch.bool)
    nothing_k = torch.zeros(2, 1, 5, dtype=torch.bool)
    problem = KSVDProblem(**pieces, valid_q=nothing_q, valid_k=nothing_k)
    trace = (pieces["w_e"] * pieces["w_r"]).sum((-2, -1)).expand(2, 3)
    assert_close(problem.objective("mean"), -trace, **EXACT)
    found = residuals_of(problem)
    assert not found.solved(0.5).any()
    assert torch.isfinite(found.kkt_weights).all()


def test_half_precision_is_widened(pieces):
    half = {name: x if x is None else x.half() for name, x in pieces.items()}
    wide = {name: x if x is None else x.float() for name, x in half.items()}
    assert_close(KSVDProblem(**half).objective(), KSVDProblem(**wide).objective())
    assert KSVDProblem(**half).objective().dtype == torch.float32


def test_gradient_of_the_objective(pieces):
    def j(w_e, w_r, sqrt_lambda):
        own = {"w_e": w_e, "w_r": w_r, "sqrt_lambda": sqrt_lambda}
        return KSVDProblem(**(pieces | own)).objective()

    inputs = tuple(pieces[x].requires_grad_() for x in ("w_e", "w_r", "sqrt_lambda"))
    assert torch.autograd.gradcheck(j, inputs)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"phi_k": (5, 3)}, "phi_k has 3 features; expected 4"),
        ({"w_r": (4, 3)}, r"w_r has shape \(4, 3\); expected \(..., 4, 2\)"),
        ({"sqrt_lambda": (3,)}, "sqrt_lambda has 3 entries; expected 2"),
        ({"w_e": (6, 2), "w_r": (6, 2)}, "w_e has 6 rows; expected p = 4"),
        ({"f": (6, 4)}, r"f has shape \(6, 4\); expected \(..., 4, 4\)"),
    ],
)
def test_bad_shapes(randn, change, message):
    shapes = {"phi_q": (7, 4), "phi_k": (5, 4), "w_e": (4, 2), "w_r": (4, 2), "sqrt_lambda": (2,)}
    with pytest.raises(ValueError, match=message):
        KSVDProblem(**{name: randn(*shape) for name, shape in (shapes | change).items()})


def test_bad_masks_and_positions(pieces):
    for name, shape in (("valid_q", (2, 7)), ("valid_k", (2, 1, 7))):
        with pytest.raises(ValueError, match="valid has shape"):
            KSVDProblem(**pieces, **{name: torch.ones(shape, dtype=torch.bool)})
    with pytest.raises(ValueError, match="'all'"):
        KSVDProblem(**pieces).objective("all")
