"""The model of a finished run with its data, whether the task or the settings name them."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from primal_attention.runs.errors import RunError
from primal_attention.tasks.table.objective import TableClasses
from primal_attention.train.judged import open_classes, with_classes


def test_a_run_on_ones_own_data(own_run):
    data, model = open_classes(own_run)
    assert len(data.selection) > 0
    assert data.test() is None
    assert not model.training


def test_damaged_weights(own_run, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.json").write_bytes((own_run / "config.json").read_bytes())
    (run / "best.safetensors").write_bytes(b"nothing")
    with pytest.raises(RunError, match=r"best\.safetensors is damaged: "):
        open_classes(run)


def test_rows_of_a_table_are_refused():
    objective = TableClasses.__new__(TableClasses)
    objective.config = SimpleNamespace(task="table/classes")
    with pytest.raises(RunError, match=r"in the light of a table \(table/classes\); expected"):
        with_classes(Path("run"), objective)
