"""The settings of a run decide the model."""

import pytest

from primal_attention.models import SequenceClassifier, SeriesNet
from primal_attention.models.build import build_model
from primal_attention.tasks.net import NET
from primal_attention.train.config import RunConfig

SHAPE = {"classes": 3, "channels": 2, "max_length": 20}


def settings(**changes):
    return RunConfig(task="uea/BasicMotions", **changes)


def test_the_transformer_is_what_settings_without_a_model_mean():
    assert isinstance(build_model(settings(), **SHAPE), SequenceClassifier)
    assert isinstance(build_model(settings(**NET), **SHAPE), SeriesNet)


@pytest.mark.parametrize(
    ("changes", "shape", "message"),
    [
        ({}, {"classes": 3, "vocabulary": 9, "max_length": 20}, "model is 'net', which is for "),
        ({"norm": "post"}, SHAPE, "norm is 'post'; expected 'pre' in the net"),
        ({"head": "flatten"}, SHAPE, "head is 'flatten'; expected 'mean' in the net"),
    ],
)
def test_what_the_net_cannot_be(changes, shape, message):
    with pytest.raises(ValueError, match=message):
        build_model(settings(**NET | changes), **shape)
