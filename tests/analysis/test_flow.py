"""Flow between groups: dense sums, and what block-diagonal and uniform attention must give."""

import numpy as np
import pytest
import torch
from torch import nn

import primal_attention as pa
from primal_attention.models import SequenceClassifier

N, D = 9, 8
GROUPS = np.array([0, 0, 0, 1, 1, -1, 2, 2, 2])


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def naive(matrix, groups, measure):
    """(G, G) by loops."""
    count = groups.max() + 1
    found = np.zeros((count, count))
    for a in range(count):
        rows = matrix[groups == a]
        for b in range(count):
            part = rows[:, groups == b]
            if measure == "mass":
                found[a, b] = part.sum() / len(rows)
            else:
                found[a, b] = (part**2).sum() / (rows**2).sum()
    return found


@pytest.mark.parametrize(
    ("name", "options", "measure"),
    [
        ("softmax", {}, "mass"),
        ("softmax", {"causal": True}, "mass"),
        ("linear", {}, "mass"),
        ("primal", {"feature_map": "elu"}, "mass"),
        ("primal", {"feature_map": "elu", "causal": True}, "mass"),
        ("primal", {"feature_map": "cosine"}, "energy"),
        ("primal", {"weights": "data", "anchors": 4}, "energy"),
        ("primal", {"weights": "free"}, "energy"),
    ],
)
def test_it_is_the_dense_sum(name, options, measure):
    torch.manual_seed(0)
    layer = pa.make_attention(name, D, 2, dtype=torch.float64, **options)
    x = draw(2, N, D)
    found = pa.attention_flow(layer, x, GROUPS).layers[0]
    assert found.measure == measure
    weights = layer(x, need_weights=True, average_attn_weights=False)[1].detach().numpy()
    for b in range(2):
        for h in range(2):
            expected = naive(weights[b, h], GROUPS, measure)
            np.testing.assert_allclose(found.share[b, h], expected, rtol=1e-6, atol=1e-9)
    everywhere = pa.attention_flow(layer, x, np.where(GROUPS < 0, 0, GROUPS)).layers[0]
    np.testing.assert_allclose(everywhere.share.sum(-1), 1.0, rtol=1e-6)
    np.testing.assert_allclose(everywhere.expected.sum(-1), 1.0)


class Fixed(nn.Module):
    """An attention with given probabilities, as torch computes it: q = k scaled one-hots."""

    def __init__(self, scale):
        super().__init__()
        self.attention = nn.MultiheadAttention(D, 1, bias=False, batch_first=True).double()
        with torch.no_grad():
            self.attention.in_proj_weight.copy_(scale * torch.eye(D).repeat(3, 1))

    def forward(self, x, mask=None):
        return self.attention(x, x, x, key_padding_mask=mask, need_weights=False)[0]


def test_uniform_attention_has_lift_1_for_any_sizes():
    found = pa.attention_flow(Fixed(0.0), draw(1, N, D), GROUPS).layers[0]
    np.testing.assert_allclose(found.lift(), 1.0)
    np.testing.assert_allclose(found.flow()[0, 0], [3 / 9, 2 / 9, 3 / 9])


def test_blocks_do_not_look_at_each_other():
    x = torch.zeros(1, 6, D, dtype=torch.float64)
    x[:, :2, 0], x[:, 2:, 1] = 60.0, 60.0
    found = pa.attention_flow(Fixed(1.0), x, np.array([0, 0, 1, 1, 1, 1]))
    np.testing.assert_allclose(found.layers[0].flow()[0], np.eye(2), atol=1e-12)
    np.testing.assert_allclose(found.layers[0].lift()[0].diagonal(), [3.0, 1.5])
    first = found.ranked("0", "0")[0]
    assert (first.layer, first.head) == (0, 0)
    assert first.lift == pytest.approx(3.0)


def test_padding_takes_no_part():
    torch.manual_seed(0)
    model = SequenceClassifier(
        classes=2, channels=3, max_length=N, attention=("softmax", "primal"), width=D, heads=2,
        feedforward=8,
    ).double()  # fmt: skip
    x = draw(1, 6, 3)
    alone = pa.attention_flow(model, x, GROUPS[:6])
    padded = torch.cat([x, torch.full((1, 3, 3), 9.0).double()], 1)
    both = torch.cat([padded, draw(1, N, 3, seed=1)])
    padding = torch.tensor([[False] * 6 + [True] * 3, [False] * 9])
    together = pa.attention_flow(model, (both, padding), GROUPS)
    for one, two in zip(alone.layers, together.layers, strict=True):
        share, expected = two.share[0][:, :2, :2], two.expected[0][:2, :2]
        np.testing.assert_allclose(share, one.share[0], rtol=1e-7)
        np.testing.assert_allclose(expected, one.expected[0])
        assert np.isnan(two.share[0][:, 2]).all()  # the group lies in the padding
    assert not np.isnan(together.layers[0].flow()).any()


def test_causal_attention_is_held_against_what_it_can_see():
    torch.manual_seed(0)
    layer = pa.make_attention("softmax", D, 1, causal=True, dtype=torch.float64)
    with torch.no_grad():
        layer.in_proj_weight[: 2 * D].zero_()  # even attention
    found = pa.attention_flow(layer, draw(1, 4, D), np.array([0, 0, 1, 1])).layers[0]
    np.testing.assert_allclose(found.share, found.expected[:, None])
    np.testing.assert_allclose(
        found.expected[0], [[1, 0], [(2 / 3 + 1 / 2) / 2, (1 / 3 + 1 / 2) / 2]]
    )


def test_calls_and_names():
    model, x = Fixed(0.3), draw(1, 4, D)
    found = pa.attention_flow(
        model, [(x,), (x[:, :3],)], [[0, 0, 1, 1], [0, 1, 1]], names=("old", "new")
    )
    assert found.layers[0].share.shape == (2, 1, 2, 2)
    assert "old -> new" in str(found)
    assert found.to_dict()["groups"] == ["old", "new"]
    assert found.ranked("old", "new")[0].share == pytest.approx(found.layers[0].flow()[0, 0, 1])


def test_equal_parts_of_what_an_attention_sees():
    model, x = Fixed(0.3), draw(2, 7, D)
    padding = torch.tensor([[False] * 7, [False] * 5 + [True] * 2])
    parts = pa.attention_flow(model, (x, padding), 2).layers[0]
    marked = pa.attention_flow(
        model, (x, padding), np.array([[0] * 4 + [1] * 3, [0] * 3 + [1] * 4])
    )
    np.testing.assert_allclose(parts.share, marked.layers[0].share)
    np.testing.assert_allclose(parts.expected[1][0], [3 / 5, 2 / 5])


def test_layers_that_share_an_attention_are_told_apart():
    class Twice(Fixed):
        def forward(self, x):
            return super().forward(super().forward(x))

    model, x = Twice(0.4), draw(1, 4, D)
    found = pa.attention_flow(model, x, np.array([0, 0, 1, 1]))
    assert [one.name for one in found.layers] == ["attention", "attention, call 2"]
    assert np.abs(found.layers[0].share - found.layers[1].share).max() > 1e-6
    assert len(pa.spectrum(model, [x, x]).layers) == 2
    assert pa.spectrum(model, [x, x]).layers[1].inputs == 2


def test_what_is_refused():
    model, x = Fixed(0.3), draw(1, 4, D)
    for groups, message in (
        (np.array([0.5, 1, 1, 1]), "expected integers"),
        (np.array([-1, -1, -1, -1]), "all positions are of group -1"),
        ([[0, 1], [0, 1]], "2 parts; expected 1"),
    ):
        with pytest.raises(ValueError, match=message):
            pa.attention_flow(model, x, groups)
    with pytest.raises(ValueError, match="names has 1 names; expected 2"):
        pa.attention_flow(model, x, np.array([0, 0, 1, 1]), names=("one",))
    with pytest.raises(ValueError, match="no attention"):
        pa.attention_flow(nn.Linear(2, 2), x, np.array([0]))
    found = pa.attention_flow(model, x, np.array([0, 0, 1, 1, 1]))
    assert found.skipped == {"attention": "it sees 4 positions; expected 5, those of groups"}
    assert found.layers == ()
