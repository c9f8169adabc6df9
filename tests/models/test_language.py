"""The language model: causal, streamed as in one go, and it goes on with a text."""

from itertools import islice

import pytest
import torch

from primal_attention.models.language import LanguageModel

KINDS = {
    "primal": {}, "linear": {}, "softmax": {},
    "free": {
        "attention": ("softmax", "primal"), "positions": "sinusoidal",
        "attention_options": {"primal": {"weights": "free", "rank": 3}},
    },
    "learned": {"attention": ("linear", "primal"), "positions": "learned"},
}  # fmt: skip
every = pytest.mark.parametrize("kind", KINDS)


def build(kind, **options):
    torch.manual_seed(0)
    own = {"attention": (kind, kind), "width": 16, "heads": 2, "dropout": 0.0, "max_length": 30}
    return LanguageModel(9, dtype=torch.float64, **own | KINDS[kind] | options).eval()


def draw(length=12):
    return torch.randint(9, (2, length), generator=torch.Generator().manual_seed(1))


@every
def test_streamed_equals_full(kind):
    model, tokens = build(kind), draw()
    full, memory = model(tokens), None
    for cut in (slice(0, 5), slice(5, 6), slice(6, 12)):
        last, memory = model.prefill(tokens[:, cut], memory)
        torch.testing.assert_close(last, full[:, cut.stop - 1], rtol=1e-9, atol=1e-10)
    assert memory.tokens == 12


@every
def test_what_comes_later_changes_nothing_before_it(kind):
    model, tokens = build(kind), draw()
    other = tokens.clone()
    other[:, 7] = (other[:, 7] + 1) % 9
    before, after = model(tokens), model(other)
    torch.testing.assert_close(after[:, :7], before[:, :7], rtol=0, atol=1e-12)
    assert not torch.allclose(after[:, 7:], before[:, 7:])


@every
def test_positions_are_told(kind):
    model, tokens = build(kind), draw()
    swapped = tokens[:, [1, 0, *range(2, 12)]]
    assert not torch.allclose(model(swapped)[:, -1], model(tokens)[:, -1], atol=1e-8)


def test_what_is_generated():
    model = build("primal")
    likeliest = list(islice(model.generate([1, 2], temperature=0), 6))
    tokens = torch.tensor([[1, 2, *likeliest]])
    assert model(tokens)[0, 1:-1].argmax(-1).tolist() == likeliest
    once, again = (
        list(islice(model.generate([3], generator=torch.Generator().manual_seed(5)), 40))
        for _ in range(2)
    )
    assert once == again
    assert len(set(once)) > 2
    drawn = list(islice(model.generate([3], top=2, without=[0, 1]), 40))
    assert not {0, 1} & set(drawn)


def test_a_table_of_positions_has_an_end():
    model = build("learned")
    with pytest.raises(ValueError, match="at most max_length = 30"):
        model.prefill(draw(31))
    assert build("primal")(draw(31)).shape == (2, 31, 9)
    with pytest.raises(ValueError, match='expected weights="tied"'):
        build("free", positions="rotary")
    with pytest.raises(ValueError, match="no tokens to go on from"):
        next(model.generate([]))
    with pytest.raises(ValueError, match="top is 0; expected an integer of at least 1"):
        next(model.generate([1], top=0))


@every
def test_without_some_tokens_it_is_a_shorter_text(kind):
    model, tokens = build(kind), draw()[:1]
    hidden = torch.zeros(3, 12, dtype=torch.bool)
    hidden[1, [0, 5]] = hidden[2, 1:] = True
    for row, mask in zip(model.without(hidden, tokens), hidden, strict=True):
        alone = model(tokens[:, ~mask])[0, -1]
        torch.testing.assert_close(row, alone, rtol=1e-9, atol=1e-10)
