"""The published starts: what they are, and that ours stay where nothing is said."""

import math

import torch

from primal_attention import ksvd_loss
from primal_attention.models.classifier import SequenceClassifier
from primal_attention.models.starts import start_as

OURS = {"projections": "xavier", "directions": "orthogonal", "tokens": "unit"}


def classifier(**shape):
    torch.manual_seed(0)
    options = {"primal": {"weights": "data", "rank": 8, "rank_multi": 5}}
    return SequenceClassifier(
        classes=3, max_length=26, width=128, heads=8, feedforward=64, attention_options=options,
        attention=("softmax", "primal"), **shape,
    )  # fmt: skip


def test_ours_stay():
    model, plain = classifier(channels=4), classifier(channels=4)
    start_as(model, **OURS)
    for a, b in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(a, b)


def test_projections_start_as_linear_layers():
    model = classifier(channels=4)
    start_as(model, **OURS | {"projections": "linear"})
    for layer in model.encoder.layers:
        for part in (layer.attention.in_proj_weight, layer.attention.out_proj.weight):
            assert math.isclose(part.std().item(), 1 / math.sqrt(3 * 128), rel_tol=0.05)
        for bias in (layer.attention.in_proj_bias, layer.attention.out_proj.bias):
            assert 0 < bias.abs().max() <= 1 / math.sqrt(128)


def test_directions_have_norm_one_in_every_head():
    model = classifier(channels=4)
    start_as(model, **OURS | {"directions": "unit"})
    attention = model.encoder.layers[1].attention
    for part in (attention.w_e, attention.w_r):
        rows = part.flatten(1)
        torch.testing.assert_close(rows @ rows.T, torch.eye(8), atol=1e-5, rtol=0)


def test_tokens_start_small_and_are_not_scaled():
    model = classifier(vocabulary=200)
    start_as(model, **OURS | {"tokens": "small"})
    rows = model.embedding(torch.arange(200))
    assert math.isclose(rows.std().item(), 0.02, rel_tol=0.05)


def test_untrained_objective_is_that_of_the_published_start():
    """J^2 of a PrimalFormer before its first step: about 2e3, not 1e6, at the width 512."""
    torch.manual_seed(0)
    model = SequenceClassifier(
        classes=9, channels=12, max_length=26, norm="post-last", head="flatten", dropout=0.0,
        attention_options={"primal": {"weights": "data", "rank": 40, "rank_multi": 5}},
    )  # fmt: skip
    x = torch.randn(4, 26, 12)
    model(x)
    ours = ksvd_loss(model).item()
    start_as(model, projections="linear", directions="unit", tokens="unit")
    model(x)
    assert 3e2 < ksvd_loss(model).item() < 1e4 < 3e5 < ours
