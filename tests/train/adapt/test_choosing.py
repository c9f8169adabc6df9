"""A measurement chooses once for a folder."""

import copy
import json

import pytest
import torch
from torch import nn

from primal_attention.convert import measuring
from primal_attention.runs.errors import RunError
from primal_attention.train.adapt import AdaptSettings, adapt_

BATCHES = [torch.randn(4, 9, 16, generator=torch.Generator().manual_seed(i)) for i in range(4)]
NONE = AdaptSettings(layerwise=0, steps=0)


@pytest.fixture
def model():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 24, batch_first=True)
    return nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).eval()


def adapted(model, folder, **asked):
    copied = copy.deepcopy(model)
    return adapt_(copied, BATCHES, rank=4, settings=NONE, folder=folder, **asked).layers


def test_what_was_chosen_is_not_measured_again(model, tmp_path, monkeypatch):
    first = adapted(model, tmp_path, count=2)
    assert len(first) == 2
    assert json.loads((tmp_path / "chosen.json").read_text())["names"] == list(first)

    def never(*args, **options):
        raise AssertionError("measured")

    monkeypatch.setattr(measuring, "measured_plan", never)
    assert adapted(model, tmp_path, count=2) == first
    with pytest.raises(AssertionError, match="measured"):
        adapted(model, tmp_path, count=1)


def test_a_budget_at_a_length(model, tmp_path):
    """At great lengths attention is nearly all there is to save; at short ones nothing is saved."""
    assert len(adapted(model, tmp_path / "long", budget="1.4x", length=4096)) == 1
    assert len(adapted(model, tmp_path / "longer", budget="2x", length=4096)) == 2
    with pytest.raises(ValueError, match="save"):
        adapted(model, None, budget="100x", length=64)


def test_a_damaged_choice_is_named(model, tmp_path):
    adapted(model, tmp_path, count=1)
    (tmp_path / "chosen.json").write_text('{"names": 3}')
    with pytest.raises(RunError, match=r"chosen\.json has the names 3"):
        adapted(model, tmp_path, count=1)
