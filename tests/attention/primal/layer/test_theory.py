"""Theorem 3.2, Remark 3.3 and Lemma 4.2 on whole layers, through their public face."""

import math

import pytest
import torch
from torch.nn.functional import elu, normalize
from torch.testing import assert_close

from primal_attention import PrimalAttention, ksvd, ksvd_loss, ksvd_residuals
from primal_attention.theory import Elu

from ....pairs import pairwise

EXACT = {"rtol": 1e-9, "atol": 1e-10}
D, H, P, S = 8, 2, 4, 2


@pytest.fixture
def glass(make_layer):
    """A layer whose output shows the scores: W_c and the output projection are identities."""

    def make(kind, **options):
        layer = make_layer(kind, D, H, rank=S, **options)
        with torch.no_grad():
            for linear in (layer.concat, layer.out_proj):
                linear.weight.copy_(torch.eye(len(linear.weight)))
                linear.bias.zero_()
        return layer

    return make


def scores(layer, *call, **options):
    """e and r (B, h, N, s) as the forward pass gives them."""
    out = layer.eval()(*call, **options)[0].unflatten(-1, (H, 2, S))
    e, r = out.permute(3, 0, 2, 1, 4)
    return e, r


def features(layer, x):
    """phi_q, phi_k (B, h, N, m) by hand."""
    rows = x
    if isinstance(layer.feature_map, Elu):  # of unit rows
        rows = x / x.square().mean(-1, keepdim=True).sqrt()
    q, k = (rows @ layer.in_proj_weight.T + layer.in_proj_bias).chunk(2, dim=-1)
    maps = []
    for side, z in enumerate((q, k)):
        z = z.unflatten(-1, (H, P)).transpose(1, 2)
        if isinstance(layer.feature_map, Elu):
            u = z * layer.feature_map.log_sharpness[side].exp()[:, None, None]
            maps.append((elu(u) + 1) ** 2)
        elif layer.feature_map.positive:
            u = z * layer.feature_map.scale
            w = layer.feature_map.directions
            size = u.square().sum(-1, keepdim=True)
            maps.append(torch.exp(u @ w.T - size / 2) / math.sqrt(len(w)))
        else:
            maps.append(normalize(z, dim=-1))
    return maps


def duals(layer, x):
    """h_e = V_e x and h_r = V_r x, (B, h, N, s)."""
    h_e, h_r = (x @ layer.dual_weight.T).unflatten(-1, (2, H, S)).permute(2, 0, 3, 1, 4)
    return h_e, h_r


def loss_of(layer, x, ignore, positions):
    layer.train()
    layer(x, key_padding_mask=ignore)
    return ksvd_loss(layer, positions=positions).item()


# -- at the solution -------------------------------------------------------------------------------

SOLVABLE = ["data-sample", "data-mean", "free", "free-causal"]


@pairwise(
    kind=SOLVABLE, feature_map=["cosine", "exp", "elu"], positions=["mean", "sum"],
    masked=[False, True],
)  # fmt: skip
def test_lemma_42_after_ksvd_initialisation(
    kind, positions, feature_map, masked, glass, make_rows, make_mask
):
    layer = glass(kind, feature_map=feature_map)
    x = make_rows(1, 15, D)
    ignore = make_mask(1, 15, keep=9) if masked else None
    before = loss_of(layer, x, ignore, positions)
    layer.init_ksvd_(x, ignore, positions=positions)
    # J is of the size of sigma, its square of sigma^2
    assert loss_of(layer, x, ignore, positions) < 1e-20
    assert before > 1e-5
    found = ksvd_residuals(layer, x, key_padding_mask=ignore, positions=positions)
    assert found.solved(1e-9).all()
    assert found.objective.abs().max() < 1e-10
    other = "sum" if positions == "mean" else "mean"
    assert loss_of(layer, x, ignore, other) > 1e-5
    assert not ksvd_residuals(layer, x, key_padding_mask=ignore, positions=other).solved(1e-3).any()
    with torch.no_grad():
        layer.sqrt_lambda.mul_(2**0.5)  # and J is not zero by accident
    assert loss_of(layer, x, ignore, positions) > 1e-5


@pairwise(
    kind=["data-sample", "data-mean", "free"], feature_map=["cosine", "exp", "elu"],
    positions=["mean", "sum"], masked=[False, True],
)  # fmt: skip
def test_lemma_42_in_cross_attention(
    kind, positions, feature_map, masked, glass, make_rows, make_mask
):
    """Means over 15 queries and fewer keys weigh the two energies differently."""
    layer = glass(kind, feature_map=feature_map)
    x, y = make_rows(1, 15, D), make_rows(1, 11, D, seed=8)
    ignore = make_mask(1, 11, keep=7) if masked else None
    layer.init_ksvd_(x, ignore, key=y, positions=positions)
    layer.train()(x, y, key_padding_mask=ignore)
    assert ksvd_loss(layer, positions=positions) < 1e-20
    found = ksvd_residuals(layer, x, y, key_padding_mask=ignore, positions=positions)
    assert found.solved(1e-9).all()
    assert found.objective.abs().max() < 1e-10
    assert not ksvd_residuals(layer, x, positions=positions).solved(1e-3).any()


@pytest.mark.parametrize("feature_map", ["cosine", "exp", "elu"])
@pytest.mark.parametrize("kind", SOLVABLE)
def test_remark_33_primal_score_is_dual_score(kind, feature_map, glass, make_rows, make_mask):
    """e = K H_r and r = K^T H_e with the duals of (14), K never formed."""
    layer = glass(kind, feature_map=feature_map)
    x, ignore = make_rows(1, 15, D), make_mask(1, 15, keep=9)
    layer.init_ksvd_(x, ignore, positions="sum")
    e, r = scores(layer, x, key_padding_mask=ignore)
    lam = layer.sqrt_lambda.square()[None, :, None]
    kernel = layer.factors(x, key_padding_mask=ignore)
    assert_close(kernel.matvec(lam * r), e, **EXACT)
    assert_close(kernel.rmatvec(lam * e), r, **EXACT)
    assert e.abs().max() > 1e-2


@pytest.mark.parametrize("kind", SOLVABLE)
def test_theorem_32_layer_holds_the_leading_singular_triplets(kind, glass, make_rows):
    layer = glass(kind)
    x = make_rows(1, 15, D)
    layer.init_ksvd_(x, positions="sum")
    e, r = scores(layer, x)
    dense = layer(x, need_weights=True, average_attn_weights=False)[1][0]
    for h in range(H):
        exact = ksvd(dense[h], S, method="dense")
        assert_close(layer.sqrt_lambda[h].square(), 1 / exact.sigma, **EXACT)
        for found, vectors in ((e, exact.left), (r, exact.right)):
            scaled = found[0, h] / exact.sigma
            assert_close((vectors * scaled).sum(0).abs(), torch.ones(S).double(), **EXACT)
            assert_close(scaled.norm(dim=0), torch.ones(S).double(), **EXACT)


def test_initialisation_pools_a_batch(glass, make_rows, make_mask):
    """With several sequences it is the KSVD of the kernel between all of them."""
    layer = glass("free")
    x, ignore = make_rows(3, 7, D), make_mask(3, 7, keep=4)
    layer.init_ksvd_(x, ignore, positions="sum")
    together = x[~ignore].unsqueeze(0)
    assert ksvd_residuals(layer, together, positions="sum").solved(1e-9).all()
    layer.init_ksvd_(x, ignore, positions="mean")
    assert loss_of(layer, together, None, "mean") < 1e-20
    y = make_rows(3, 5, D, seed=8)
    layer.init_ksvd_(y, ignore, key=x)
    assert ksvd_residuals(layer, y.flatten(0, 1)[None], together).solved(1e-9).all()


def test_initialisation_says_when_there_are_too_few_singular_values(make_layer, make_rows):
    layer = make_layer("free", D, H, rank=P + 1)
    with pytest.raises(ValueError, match=r"rank = 5 .* head_dim = 4"):
        layer.init_ksvd_(make_rows(1, 15, D))
    layer = make_layer("free", D, H, rank=3)
    with pytest.raises(ValueError, match="rank = 3"):
        layer.init_ksvd_(make_rows(1, 2, D))
    with pytest.raises(ValueError, match="tied"):
        make_layer("tied", D, H).init_ksvd_(make_rows(1, 9, D))
    with pytest.raises(ValueError, match="'median'"):
        layer.init_ksvd_(make_rows(1, 9, D), positions="median")


@pytest.mark.parametrize("kind", SOLVABLE)
def test_zero_objective_is_not_a_solution(kind, glass, make_rows):
    """Random weights with Lambda rescaled by one number: J = 0, and nothing is solved."""
    layer = glass(kind, seed=7)
    x = make_rows(1, 15, D)
    with torch.no_grad():
        layer.w_r.copy_(layer.w_e + 0.3 * layer.w_r)  # a positive trace, so that a scale exists
        e, r = scores(layer, x)
        lam = layer.sqrt_lambda.square()[None, :, None]
        energy = ((e.square() * lam).sum((-2, -1)) + (r.square() * lam).sum((-2, -1))) / 2
        trace = (layer.w_e * layer.w_r).sum((-2, -1))
        assert (trace > 0).all()
        layer.sqrt_lambda.mul_((trace / energy[0]).sqrt().unsqueeze(-1))
    assert loss_of(layer, x, None, "sum") < 1e-20
    found = ksvd_residuals(layer, x, positions="sum")
    assert found.objective.abs().max() < 1e-10
    assert found.kkt_weights.min() > 0.05
    assert found.eigenproblem.min() > 0.05
    assert found.orthogonality.min() > 0.05
    assert not found.solved(0.05).any()


# -- tied weights: the dual form by construction ---------------------------------------------------


@pytest.mark.parametrize("masked", [False, True], ids=["no mask", "mask"])
def test_tied_weights_satisfy_the_first_lines_of_kkt(masked, glass, make_rows, make_mask):
    """W_e = c sum_j phi_k h_r^T, W_r = c sum_i phi_q h_e^T, and e = c K h_r, r = c K^T h_e."""
    layer = glass("tied")
    x = make_rows(2, 9, D)
    ignore = make_mask(2, 9, keep=3) if masked else torch.zeros(2, 9, dtype=torch.bool)
    count = (~ignore).sum(-1)
    phi_q, phi_k = features(layer, x)
    h_e, h_r = duals(layer, x)
    problem = layer.ksvd_problem(x, key_padding_mask=ignore if masked else None)
    for b in range(2):
        valid = [j for j in range(9) if not ignore[b, j]]
        for h in range(H):
            w_e = sum(torch.outer(phi_k[b, h, j], h_r[b, h, j]) for j in valid) / count[b]
            w_r = sum(torch.outer(phi_q[b, h, j], h_e[b, h, j]) for j in valid) / count[b]
            assert_close(problem.w_e[b, h], w_e, **EXACT)
            assert_close(problem.w_r[b, h], w_r, **EXACT)
    e, r = scores(layer, x, key_padding_mask=ignore if masked else None)
    kernel = layer.factors(x, key_padding_mask=ignore if masked else None)
    below = count.view(2, 1, 1, 1)
    assert_close(kernel.matvec(h_r) / below, e, **EXACT)
    assert_close(kernel.rmatvec(h_e) / below, r, **EXACT)
    problem_e, problem_r = problem.scores()
    assert_close(problem_e, e, **EXACT)
    assert_close(problem_r, r, **EXACT)


def test_tied_cross_attention_is_equation_8(glass, make_rows):
    layer = glass("tied")
    x, y = make_rows(2, 6, D), make_rows(2, 4, D, seed=8)
    h_e, h_r = duals(layer, y)
    e, r = scores(layer, x, y)
    assert_close(e, layer.factors(x, y).matvec(h_r) / 4, **EXACT)
    assert_close(r, layer.factors(y, x).rmatvec(h_e) / 4, **EXACT)


def test_tied_positive_features_average_the_duals(glass, make_rows, make_mask):
    """With positive features every row of K sums to one: e is a mean of h_r, as in softmax."""
    layer = glass("tied", feature_map="exp")
    x, ignore = make_rows(2, 9, D), make_mask(2, 9, keep=3)
    kernel = layer.factors(x, key_padding_mask=ignore)
    ones = (~ignore).double()[:, None].expand(2, H, 9)
    assert_close(kernel.row_sums(), ones, **EXACT)
    e, _ = scores(layer, x, key_padding_mask=ignore)
    assert_close(kernel.matvec(duals(layer, x)[1]), e, **EXACT)


@pytest.mark.parametrize("feature_map", ["cosine", "exp", "elu"])
def test_causal_tied_kernel_is_a_triangle(feature_map, glass, make_rows, make_mask):
    layer = glass("tied-causal", feature_map=feature_map)
    x, ignore = make_rows(2, 9, D), make_mask(2, 9, keep=3)
    call = {"key_padding_mask": ignore, "need_weights": True, "average_attn_weights": False}
    kernel = layer(x, **call)[1]
    assert (kernel.triu(1) == 0).all()
    e, _ = scores(layer, x, key_padding_mask=ignore)
    expected = kernel @ duals(layer, x)[1]
    if feature_map == "cosine":
        count = (~ignore).cumsum(-1).clamp(min=1)[:, None, :, None]
        expected = expected / count
    assert_close(e, expected, **EXACT)
    with pytest.raises(ValueError, match="triangle"):
        layer.factors(x)
    with pytest.raises(ValueError, match="not one KSVD problem"):
        layer.ksvd_problem(x)


@pytest.mark.parametrize("feature_map", ["exp", "elu"])
@pytest.mark.parametrize("masked", [False, True], ids=["no mask", "mask"])
def test_tied_positive_features_are_one_problem(feature_map, masked, glass, make_rows, make_mask):
    """Of the kernel D_q^{-1/2} K D_k^{-1/2}, with the weights (14) and scores c D^{1/2} e."""
    layer = glass("tied", feature_map=feature_map)
    x = make_rows(1, 9, D)
    ignore = make_mask(1, 9, keep=6) if masked else torch.zeros(1, 9, dtype=torch.bool)
    problem = layer.ksvd_problem(x, key_padding_mask=ignore)
    seen = x[:, ~ignore[0]]
    phi_q, phi_k = features(layer, seen)
    kernel = phi_q @ phi_k.mT
    rows, columns = kernel.sum(-1, keepdim=True), kernel.sum(-2, keepdim=True)
    even = kernel / rows.sqrt() / columns.sqrt()
    dense = problem.factors().dense()[..., ~ignore[0], :][..., ~ignore[0]]
    assert_close(dense, even, **EXACT)
    assert_close(torch.linalg.svdvals(even)[..., 0], torch.ones(1, H, dtype=x.dtype), **EXACT)
    e, r = scores(layer, x, key_padding_mask=ignore)
    found_e, found_r = (t[..., ~ignore[0], :] for t in problem.scores())
    c = 1 / seen.shape[1]
    assert_close(found_e, c * rows.sqrt() * e[..., ~ignore[0], :], **EXACT)
    assert_close(found_r, c * columns.mT.sqrt() * r[..., ~ignore[0], :], **EXACT)
    h_e, h_r = duals(layer, seen)
    assert_close(problem.w_e, c * phi_k.mT @ h_r, **EXACT)
    assert_close(problem.w_r, c * phi_q.mT @ h_e, **EXACT)


# -- the induced kernel ----------------------------------------------------------------------------


def explicit_kernel(layer, x, y):
    """(h, N, M) for one pair of sequences, from the definition in section 3."""
    phi_q, phi_k = (t[0] for t in (features(layer, x)[0], features(layer, y)[1]))
    metric = torch.eye(phi_q.shape[-1], dtype=x.dtype).expand(H, -1, -1)
    if layer.weights == "data":
        n, last = layer.anchors, y.shape[1] - 1
        f = y[0, [round(i * last / (n - 1)) for i in range(n)]]
        f = f.unflatten(-1, (H, P)).transpose(0, 1)
        metric = f.mT @ f
    kernel = phi_q @ metric @ phi_k.mT
    if layer.feature_map.positive:
        q_y, k_y = (t[0] for t in features(layer, y))
        d_x = (phi_q @ k_y.mT).sum(-1)
        if layer.weights == "tied":
            return kernel / d_x.unsqueeze(-1)
        d_y = (q_y @ k_y.mT).sum(-1)
        kernel = kernel / d_x.sqrt().unsqueeze(-1) / d_y.sqrt().unsqueeze(-2)
    return kernel


@pytest.mark.parametrize("feature_map", ["cosine", "exp", "elu"])
@pytest.mark.parametrize("kind", ["data-sample", "free", "tied"])
def test_need_weights_is_the_kernel(kind, feature_map, glass, make_rows):
    layer = glass(kind, feature_map=feature_map)
    x, y = make_rows(2, 12, D), make_rows(2, 11, D, seed=4)
    for other in (None, y):
        out, by_head = layer(x, other, need_weights=True, average_attn_weights=False)
        context = x if other is None else other
        for b in range(2):
            expected = explicit_kernel(layer, x[b : b + 1], context[b : b + 1])
            assert_close(by_head[b], expected, **EXACT)
        assert_close(layer.factors(x, other).dense(), by_head, **EXACT)
        mean = layer(x, other, need_weights=True)[1]
        assert_close(mean, by_head.mean(1), **EXACT)
        assert_close(layer(x, other)[0], out, rtol=0, atol=0)
        assert layer(x, other)[1] is None
    assert layer(x[0], need_weights=True)[1].shape == (12, 12)


@pytest.mark.parametrize("kind", ["data-sample", "data-mean", "free", "tied", "free-causal"])
def test_ignored_positions_have_no_kernel(kind, glass, make_rows, make_mask):
    layer = glass(kind)
    x, ignore = make_rows(2, 12, D), make_mask(2, 12, keep=3)
    call = {"need_weights": True, "average_attn_weights": False}
    kernel = layer(x, key_padding_mask=ignore, **call)[1]
    for b in range(2):
        keep = ~ignore[b]
        assert (kernel[b][:, ignore[b]] == 0).all()
        assert (kernel[b][:, :, ignore[b]] == 0).all()
        alone = layer(x[b : b + 1, keep], **call)[1][0]
        assert_close(kernel[b][:, keep][:, :, keep], alone, **EXACT)


@pytest.mark.parametrize("kind", ["data-sample", "data-mean", "free", "tied", "free-causal"])
def test_singular_values_without_the_kernel(kind, glass, make_rows, make_mask):
    layer = glass(kind)
    x, ignore = make_rows(2, 12, D), make_mask(2, 12, keep=6)
    factors = layer.factors(x, key_padding_mask=ignore)
    dense = layer(x, key_padding_mask=ignore, need_weights=True, average_attn_weights=False)[1]
    exact = torch.linalg.svdvals(dense)
    assert factors.max_rank == P  # rank K <= p
    assert_close(factors.singular_values(), exact[..., :P], **EXACT)
    assert exact[..., P:].max() < 1e-12 * exact.max()
    assert exact[..., P - 1].min() > 1e-6  # and p is reached
    left, sigma, right = factors.svd()
    assert_close(left @ torch.diag_embed(sigma) @ right.mT, dense, **EXACT)


# -- the start -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["elu", "exp"])
def test_tied_weights_with_positive_features_start_with_a_symmetric_kernel(name, make_rows):
    """Equal content is seen from the first step; the first gradients part queries and keys."""
    torch.manual_seed(0)
    layer = PrimalAttention(D, H, rank=S, feature_map=name, dtype=torch.float64)
    x = make_rows(2, 7, D)
    queries, keys = layer.in_proj_weight.chunk(2)
    assert torch.equal(queries, keys)
    phi_q, phi_k = features(layer, x)
    kernel = phi_q @ phi_k.mT
    assert_close(kernel, kernel.mT)
    layer.train()(x)[0].square().sum().backward()
    slope_q, slope_k = layer.in_proj_weight.grad.chunk(2)
    assert (slope_q - slope_k).abs().max() > 1e-6
    before = layer.in_proj_weight.detach().clone()
    layer.reset_parameters()
    queries, keys = layer.in_proj_weight.chunk(2)
    assert torch.equal(queries, keys)
    assert not torch.equal(layer.in_proj_weight, before)


@pytest.mark.parametrize("options", [{"feature_map": "cosine"}, {"weights": "data"}])
def test_bounded_features_start_with_queries_and_keys_of_their_own(options):
    queries, keys = PrimalAttention(D, H, rank=S, **options).in_proj_weight.chunk(2)
    assert not torch.equal(queries, keys)
