"""Evaluation does not depend on how the cases are batched."""

import itertools

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric
from torch.nn import functional as F

from primal_attention.tasks import get_task
from primal_attention.tasks.classification.evaluate import evaluate, similar_lengths
from primal_attention.tasks.classification.objective import Classification


def test_batches_of_similar_length():
    lengths = np.array([3, 9, 4, 1, 9, 30, 2])
    found = similar_lengths(lengths, 18)
    assert found == [[5], [1, 4], [2, 0, 6, 3]]
    for tokens in (1, 7, 1000):
        batches = similar_lengths(lengths, tokens)
        assert sorted(itertools.chain(*batches)) == list(range(7))
        for batch in batches:
            assert len(batch) == 1 or len(batch) * lengths[batch].max() <= tokens


@pytest.mark.parametrize("attention", [("primal",), ("softmax",)])
def test_evaluation_is_that_of_every_case_alone(config, attention):
    settings = config(protocol="paper", attention=attention)
    data = Classification.load(get_task(settings.task), settings)
    torch.manual_seed(0)
    bare = data.model().double()
    fabric = Fabric(accelerator="cpu", devices=1, precision="64-true")
    model = fabric.setup(bare)
    losses, confusion = [], np.zeros((9, 9), int)
    for i in range(len(data.selection)):
        inputs, padding, target = data.selection.__getitems__([i])
        logits = bare.eval()(inputs.double(), padding)
        losses.append(F.cross_entropy(logits, target).item())
        confusion[target, logits.argmax()] += 1
    for tokens in (1, 100, 4096):
        found = evaluate(fabric, model, data.selection, tokens=tokens)
        assert found.loss == pytest.approx(np.mean(losses), rel=1e-6)
        assert np.array_equal(found.confusion, confusion)
        assert found.accuracy == np.trace(confusion) / len(losses)
    assert not model.training
