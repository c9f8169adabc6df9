"""Errors of numbers against their definitions."""

import pytest
import torch

pytest.importorskip("lightning_fabric")

from lightning_fabric import Fabric

from primal_attention.tasks.regression.objective import errors
from primal_attention.tasks.regression.result import EXPLAINED
from primal_attention.tasks.series import SeriesData, SeriesSet


def test_r2_and_errors_are_those_of_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    torch.manual_seed(0)
    lengths = [3, 5, 1, 4, 4, 2, 7]
    series = [torch.randn(n, 2).double().numpy() for n in lengths]
    data = SeriesData(SeriesSet("a", series, torch.zeros(7, dtype=torch.int64).numpy(), ("v",)))
    data.targets = torch.randn(7).double()

    class Mean(torch.nn.Module):
        def forward(self, inputs, padding):
            return inputs.sum((1, 2)).unsqueeze(1)

    found = errors(Fabric(accelerator="cpu", devices=1), Mean(), data)
    predicted, true = [x.sum() for x in series], data.targets.numpy()
    assert found.r2 == pytest.approx(metrics.r2_score(true, predicted), abs=1e-6)
    assert found.mae == pytest.approx(metrics.mean_absolute_error(true, predicted), abs=1e-6)
    rmse = metrics.root_mean_squared_error(true, predicted)
    assert found.rmse == pytest.approx(rmse, abs=1e-6)


def test_what_is_explained_may_be_less_than_nothing():
    assert EXPLAINED.clip(-30.0) == -30.0
    assert EXPLAINED.clip(130.0) == 100.0
