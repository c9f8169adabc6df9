"""Transport along training: its figures, and that a resumed run writes the same ones."""

import json
import shutil

import pytest
import torch

from primal_attention.analysis.optimal_transport import efficiency, moved_rows
from primal_attention.models import SequenceClassifier
from primal_attention.runs.metrics import read_metrics
from primal_attention.train import RunConfig, resume, train
from primal_attention.train.track import TransportTracker


def test_the_path_is_that_of_the_rows():
    torch.manual_seed(0)
    model = SequenceClassifier(
        classes=2, channels=2, max_length=6, attention=("primal",), width=8, heads=2,
        feedforward=8,
    ).double()  # fmt: skip
    calls = [(torch.randn(3, 6, 2, dtype=torch.float64),)]
    tracker, path, found = TransportTracker(), [], {}
    for _ in range(3):
        found = tracker.look(model, calls)
        ((_, after),) = moved_rows(model, calls)[0].values()
        path.append(after)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
    (record,) = found.values()
    assert record["efficiency"] == pytest.approx(efficiency(path), rel=1e-5)
    assert record["optimality"] <= 1


def test_a_resumed_run_writes_the_same_lines(tmp_path):
    config = RunConfig(
        task="uea/BasicMotions", attention=("primal",), epochs=2, width=8, heads=2, feedforward=8,
        rank=2, track="transport", checkpoint_seconds=0.0, accelerator="cpu",
    )  # fmt: skip
    result = train(config, root=tmp_path, name="whole")

    def lines(run):
        return [one for one in read_metrics(run) if one["kind"] == "transport"]

    assert [one["epoch"] for one in lines(result.run)] == [0, 1, 2]
    (record,) = lines(result.run)[-1]["attentions"].values()
    assert 0 < record["efficiency"] <= 1 + 1e-9
    # as if it had been killed before its last checkpoint
    copy = tmp_path / "again"
    shutil.copytree(result.run, copy)
    (copy / "result.json").unlink()
    shutil.rmtree(sorted((copy / "checkpoints").iterdir())[-1])
    resume(copy)
    assert json.dumps(lines(copy)) == json.dumps(lines(result.run))
