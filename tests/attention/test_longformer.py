"""Longformer against a dense softmax with the window as its mask."""

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from primal_attention import make_attention

from ..pairs import pairwise
from .draws import draw

WIDTH, HEADS = 12, 3
EXACT = {"rtol": 1e-9, "atol": 1e-9}


def layer(**options):
    torch.manual_seed(1)
    made = make_attention("longformer", WIDTH, HEADS, dtype=torch.float64, **options)
    torch.nn.init.normal_(made.in_proj_bias)
    return made


def window_mask(n: int, window: int, global_tokens: int, causal: bool) -> Tensor:
    """Who sees whom, one query at a time."""
    seen = torch.zeros(n, n, dtype=torch.bool)
    for i in range(n):
        if causal:
            seen[i, max(i - window + 1, 0) : i + 1] = True
            seen[i, : min(global_tokens, i + 1)] = True
        else:
            start = max(min(i - window // 2, n - window), 0)
            seen[i, start : start + window] = True
            seen[i, :global_tokens] = True
            if i < global_tokens:
                seen[i] = True
    return seen


def dense(made, x: Tensor, ignore: Tensor, seen_of) -> Tensor:
    """The same layer, sample by sample without the ignored positions, with the matrix formed."""
    outputs = torch.zeros_like(x)
    for b in range(len(x)):
        valid = (~ignore[b]).nonzero()[:, 0]
        if len(valid) == 0:
            continue
        rows = x[b, valid] @ made.in_proj_weight.T + made.in_proj_bias
        q, k, v = rows.unflatten(-1, (3, HEADS, -1)).permute(1, 2, 0, 3)
        scores = q @ k.mT / math.sqrt(WIDTH // HEADS)
        weights = scores.masked_fill(~seen_of(len(valid)), -torch.inf).softmax(-1)
        out = made.out_proj((weights @ v).transpose(0, 1).flatten(1))
        outputs = outputs.index_put((torch.tensor(b), valid), out)
    return outputs


def gradients(out: Tensor, x: Tensor, made) -> list[Tensor]:
    return [out, *torch.autograd.grad(out.sin().sum(), [x, *made.parameters()])]


@pairwise(window=[1, 2, 7, 39, 70, 100], global_tokens=[0, 3, 50], causal=[False, True])
def test_the_windowed_softmax(window, global_tokens, causal):
    made = layer(window=window, global_tokens=global_tokens, causal=causal)
    length = 77
    x = draw(4, length, WIDTH).requires_grad_()
    ignore = draw(4, length, seed=1) > 0.5  # holes
    ignore[0] = False
    ignore[2, 3:] = True
    ignore[3] = True
    out, _ = made(x, key_padding_mask=ignore)

    def seen(n: int) -> Tensor:
        return window_mask(n, window, global_tokens, causal)

    expected = gradients(dense(made, x, ignore, seen), x, made)
    for ours, right in zip(gradients(out, x, made), expected, strict=True):
        assert_close(ours, right, **EXACT)
    assert_close(made(x[:1])[0], out[:1], **EXACT)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [1, 2, 9, 31, 65])
def test_a_window_of_the_whole_sequence_is_softmax(length, causal):
    x = draw(2, length, WIDTH)
    for window in (length, length + 1, 3 * length):
        made = layer(window=window, causal=causal)
        softmax = make_attention("softmax", WIDTH, HEADS, causal=causal, dtype=torch.float64)
        softmax.load_state_dict(made.state_dict())
        assert_close(made(x)[0], softmax(x)[0], **EXACT)


def test_the_weights_are_the_window():
    made, x = layer(window=6, global_tokens=1), draw(1, 40, WIDTH)
    _, weights = made(x, need_weights=True, average_attn_weights=False)
    assert torch.equal(weights[0] != 0, window_mask(40, 6, 1, False).expand(HEADS, -1, -1))
    assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]), **EXACT)


def test_no_square_matrix_in_memory():
    """The largest tensor that a forward makes grows with N, not with N^2."""
    largest = []
    for length in (512, 1024):
        made, x = layer(window=16, global_tokens=2), draw(1, length, WIDTH)
        with torch.profiler.profile(profile_memory=True) as seen:
            made(x)
        largest.append(max(event.cpu_memory_usage for event in seen.key_averages()))
    assert largest[1] < 2.5 * largest[0]


def test_dropout_acts_in_training_only():
    made, x = layer(window=4, global_tokens=1, dropout=0.5), draw(1, 20, WIDTH)
    assert not torch.equal(made(x)[0], made(x)[0])
    made.eval()
    assert torch.equal(made(x)[0], made(x)[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": 0}, "window is 0; expected an integer of at least 1"),
        ({"window": 2.5}, "window is 2.5; expected"),
        ({"global_tokens": -1}, "global_tokens is -1; expected"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(ValueError, match=message):
        layer(**options)
