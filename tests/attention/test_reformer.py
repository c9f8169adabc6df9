"""Reformer against a dense softmax with the pairs that the buckets let meet."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from primal_attention import make_attention
from primal_attention.attention.reformer import BITS, DIGITS, ReformerAttention

from .draws import draw

WIDTH, HEADS = 12, 3
EXACT = {"rtol": 1e-9, "atol": 1e-9}


def layer(seed: int = 1, **options) -> ReformerAttention:
    torch.manual_seed(seed)
    made = make_attention("reformer", WIDTH, HEADS, dtype=torch.float64, **options)
    torch.nn.init.normal_(made.in_proj_bias)
    return made


def bucket(made: ReformerAttention, q: Tensor, head: int, turn: int, bits: int) -> int:
    """The hash of one vector, digit by digit: argmax([H q, -H q])."""
    number = 0
    for digit in range(DIGITS):
        here = min(max(bits - BITS * digit, 0), BITS)
        if here:
            columns = made.rotations[head, :, turn, digit, : 2 ** (here - 1)]
            best = int(torch.cat([q @ columns, -(q @ columns)]).argmax())
            index, opposite = best % columns.shape[1], best // columns.shape[1]
            number += (2 * index + opposite) * 2 ** (BITS * digit)
    return number


def meetings(made: ReformerAttention, q: Tensor, head: int) -> Tensor:
    """In how many rounds position i sees position j, for q (n, p)."""
    n, size = len(q), made.bucket_size
    bits = 0
    while size * 2 ** (bits + 1) <= n and bits < BITS * DIGITS:
        bits += 1
    met = torch.zeros(n, n, dtype=torch.float64)
    for turn in range(made.hashes):
        members: dict[int, list[int]] = {}
        for i in range(n):
            members.setdefault(bucket(made, q[i], head, turn, bits), []).append(i)
        for inside in members.values():
            for a, i in enumerate(inside):
                for b, j in enumerate(inside):
                    near = a // size - b // size in (0, 1)
                    met[i, j] += near and (j <= i or not made.causal)
    return met


def dense(made: ReformerAttention, x: Tensor, ignore: Tensor) -> Tensor:
    """The same layer, sample by sample without the ignored positions, with the matrix formed."""
    outputs = torch.zeros_like(x)
    for b in range(len(x)):
        valid = (~ignore[b]).nonzero()[:, 0]
        if len(valid) == 0:
            continue
        rows = x[b, valid] @ made.in_proj_weight.T + made.in_proj_bias
        q, v = rows.unflatten(-1, (2, HEADS, -1)).permute(1, 2, 0, 3)
        scores = q @ (q / q.norm(dim=-1, keepdim=True)).mT - 1e5 * torch.eye(len(valid))
        met = torch.stack([meetings(made, q[h].detach(), h) for h in range(HEADS)])
        weights = (scores + met.log()).softmax(-1)
        out = made.out_proj((weights @ v).transpose(0, 1).flatten(1))
        outputs = outputs.index_put((torch.tensor(b), valid), out)
    return outputs


def gradients(out: Tensor, x: Tensor, made) -> list[Tensor]:
    return [out, *torch.autograd.grad(out.sin().sum(), [x, *made.parameters()])]


@pytest.mark.parametrize(
    ("bucket_size", "hashes", "causal"),
    [
        *((1, 1, False), (1, 1, True), (2, 3, True), (5, 1, False), (5, 4, False), (5, 4, True)),
        *((23, 2, True), (24, 2, False), (100, 2, True)),
    ],
)
def test_the_softmax_over_the_buckets(bucket_size, hashes, causal):
    made = layer(bucket_size=bucket_size, hashes=hashes, causal=causal)
    length = 47
    x = draw(4, length, WIDTH).requires_grad_()
    ignore = draw(4, length, seed=1) > 0.5  # holes
    ignore[0] = False
    ignore[2, 3:] = True
    ignore[3] = True
    out, _ = made(x, key_padding_mask=ignore)
    expected = gradients(dense(made, x, ignore), x, made)
    for ours, right in zip(gradients(out, x, made), expected, strict=True):
        assert_close(ours, right, **EXACT)
    assert_close(made(x[:1])[0], out[:1], **EXACT)


def test_buckets_of_several_digits():
    made = layer(bucket_size=1, hashes=1)
    x = draw(2, 300, WIDTH)
    ignore = torch.zeros(2, 300, dtype=torch.bool)
    ignore[1, 100:] = True  # 64 buckets, one digit, beside 256
    assert_close(made(x, key_padding_mask=ignore)[0], dense(made, x, ignore), **EXACT)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("hashes", [1, 3])
def test_one_bucket_is_dense_attention_with_shared_queries_and_keys(hashes, causal):
    made, x = layer(bucket_size=20, hashes=hashes, causal=causal), draw(2, 20, WIDTH)
    q, v = (x @ made.in_proj_weight.T + made.in_proj_bias).unflatten(-1, (2, HEADS, -1)).unbind(2)
    q, v = q.transpose(1, 2), v.transpose(1, 2)
    scores = q @ torch.nn.functional.normalize(q, dim=-1).mT
    hidden = torch.eye(20, dtype=torch.bool)  # not itself
    if causal:
        hidden = hidden | torch.ones(20, 20, dtype=torch.bool).triu(1)
        hidden[0, 0] = False  # the first has nobody else
    heads = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v
    assert_close(made(x)[0], made.out_proj(heads.transpose(1, 2).flatten(2)), **EXACT)


def test_equal_vectors_meet_and_opposite_ones_do_not():
    made = layer(bucket_size=4, hashes=5)
    q = draw(1, HEADS, 1, WIDTH // HEADS)
    buckets = made._buckets(torch.cat([q, 3 * q, -q] * 6, 2), None)  # (1, h, R, 18)
    assert torch.equal(buckets[..., 0::3], buckets[..., 1::3])
    assert (buckets[..., 0::3] != buckets[..., 2::3]).all()


@pytest.mark.parametrize("length", [1, 7, 8, 63, 64, 65, 128, 1000])
def test_the_number_of_buckets(length):
    made = layer(bucket_size=4, hashes=2)
    buckets = made._buckets(draw(1, HEADS, length, WIDTH // HEADS), None)
    most = 2 ** max((length // 4).bit_length() - 1, 0)
    assert buckets.min() >= 0
    assert most // 2 <= buckets.max() < most
    assert most == 1 or most * 4 <= length < most * 8


@pytest.mark.parametrize("same", [True, False])
def test_the_slots_suffice(same):
    """Chunks are counted in advance, for the worst case."""
    made = layer(bucket_size=3, hashes=1)
    for length in range(1, 60):
        top = 2 ** made._bits(length)
        spread = torch.arange(length) % top if not same else torch.zeros(length, dtype=torch.long)
        chunks = made._chunks(spread.view(1, 1, 1, -1), padded=False)
        slot = chunks.slot.flatten()
        assert slot.min() >= 3
        assert slot.max() < chunks.position.shape[-1]
        assert torch.equal(chunks.position.flatten()[slot], torch.arange(length))
        assert int(chunks.taken.sum()) == length


def test_a_value_of_its_own():
    made, x, z = layer(bucket_size=4), draw(2, 30, WIDTH), draw(2, 30, WIDTH, seed=5)
    out, weights = made(x, x, z, need_weights=True, average_attn_weights=False)
    v = (z @ made.in_proj_weight[WIDTH:].T + made.in_proj_bias[WIDTH:]).unflatten(-1, (HEADS, -1))
    heads = weights @ v.transpose(1, 2)
    assert_close(out, made.out_proj(heads.transpose(1, 2).flatten(2)), **EXACT)


def test_rotations_are_saved_and_redrawn_on_demand():
    made, x = layer(bucket_size=4), draw(2, 40, WIDTH)
    assert "rotations" in made.state_dict()
    before, _ = made(x)
    assert torch.equal(made(x)[0], before)
    made.redraw()
    assert not torch.equal(made(x)[0], before)


def test_dropout_acts_in_training_only():
    made, x = layer(bucket_size=4, dropout=0.5), draw(1, 20, WIDTH)
    assert not torch.equal(made(x)[0], made(x)[0])
    made.eval()
    assert torch.equal(made(x)[0], made(x)[0])


@pytest.mark.parametrize("option", ["hashes", "bucket_size"])
def test_wrong_options(option):
    with pytest.raises(ValueError, match=f"{option} is 0; expected an integer of at least 1"):
        layer(**{option: 0})


def test_sums_over_rounds_stay_in_the_range_of_float16():
    """A key that every round meets counts that often before the division."""
    torch.manual_seed(0)
    layer = ReformerAttention(32, 2)
    x = (10000 * torch.randn(1, 50, 32)).half()
    half, exact = (
        layer.to(dtype)(x.to(dtype))[0].float() for dtype in (torch.float16, torch.float32)
    )
    assert_close(half, exact, rtol=0.05, atol=0.01 * exact.abs().max().item())
