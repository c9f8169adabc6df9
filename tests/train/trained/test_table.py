"""Runs of tables at work: files, frames and arrays give one answer, and rows may join later."""

import csv
import io
import shutil

import numpy as np
import pytest

import primal_attention as pa
from primal_attention.runs.errors import RunError
from primal_attention.tasks import DataError
from primal_attention.train.trained.export import export_run
from primal_attention.train.trained.predict import predict_file
from primal_attention.train.trained.table import TrainedTable


@pytest.fixture(scope="module")
def model(table_run):
    return pa.load_run(table_run)


def test_a_run_is_a_fitted_estimator(model, people, tmp_path):
    assert isinstance(model, TrainedTable)
    assert model.classes == ("no", "yes")
    sure = model.predict_proba(str(people))
    assert sure.shape == (120, 2)
    np.testing.assert_allclose(sure.sum(1), 1.0)
    assert (np.array(["no", "yes"])[sure.argmax(1)] == model.predict(people)).all()
    pd = pytest.importorskip("pandas")
    frame = pd.read_csv(people, parse_dates=["since"])[["age", "city", "since"]]
    np.testing.assert_array_equal(model.predict_proba(frame), sure)
    assert model.estimator.context_rows_ == 120
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"age": "years"}))
    model.estimator.save(tmp_path / "saved")
    again = pa.PrimalTableClassifier.load(tmp_path / "saved")
    np.testing.assert_array_equal(again.predict_proba(frame), sure)


def test_new_rows_join_the_context_and_the_folder_stays(table_run, people):
    pd = pytest.importorskip("pandas")
    model, frame = pa.load_run(table_run), pd.read_csv(people, parse_dates=["since"])
    before = model.predict_proba(people)
    model.absorb(frame[["age", "city", "since"]], frame["out"])
    assert model.estimator.context_rows_ == 240
    assert abs(model.predict_proba(people) - before).max() > 1e-6
    np.testing.assert_array_equal(pa.load_run(table_run).predict_proba(people), before)


def test_classes_of_numbers_keep_their_order_when_rows_join(tmp_path):
    from primal_attention.train import train
    from primal_attention.train.config import settings_for

    lines = [f"{i % 5},{[2, 10, 9][i % 3]}" for i in range(30)]
    (tmp_path / "t.csv").write_text("\n".join(["a,y", *lines]) + "\n")
    small = {"width": 8, "heads": 2, "feedforward": 8, "rank": 2, "epochs": 1, "epoch_steps": 2}
    config = settings_for("table/csv", data=str(tmp_path / "t.csv"), **small)
    model = pa.load_run(train(config, root=tmp_path).run)
    assert model.classes == ("2", "9", "10")
    assert model.estimator._labels(np.array(["10", "2", "9"]), np.zeros(3)).tolist() == [2, 0, 1]
    model.absorb([[1.0], [2.0]], [10, 2])
    assert model.estimator.context_rows_ == 32
    with pytest.raises(ValueError, match="y has the class '3', which was not there in fit"):
        model.absorb([[1.0]], [3])


def test_predictions_of_a_file(model, people, tmp_path):
    out = io.StringIO()
    assert predict_file(model, people, out) == 120
    rows = list(csv.DictReader(io.StringIO(out.getvalue())))
    assert [row["case"] for row in rows[:2]] == ["r0", "r1"]
    sure = model.predict_proba(people)
    assert float(rows[5]["p(yes)"]) == pytest.approx(sure[5, 1], abs=1e-6)
    alone = tmp_path / "new.csv"  # without target and names
    alone.write_text("age,city,since\n30,bonn,2026-01-03\n,new,\n")
    assert len(model.predict(alone)) == 2
    alone.write_text("age,city\n30,bonn\n")
    with pytest.raises(DataError, match="has no column 'since'"):
        model.predict(alone)


def test_exports_are_the_folder_or_a_sentence(table_run, model, people, tmp_path):
    found = export_run(table_run, "safetensors", tmp_path / "hub")
    assert found.difference == 0.0
    again = pa.load_run(tmp_path / "hub")
    np.testing.assert_array_equal(again.predict_proba(people), model.predict_proba(people))
    card = (tmp_path / "hub" / "README.md").read_text()
    assert "tabular-classification" in card
    assert "model of rows, 2 classes" in card
    for form in ("onnx", "torch"):
        with pytest.raises(RunError, match="whose rows are no tensors; expected --format safet"):
            export_run(table_run, form, tmp_path / "x")


@pytest.mark.parametrize("name", ["reader.json", "memory.safetensors", "best.safetensors"])
def test_a_folder_that_lacks_a_part_or_has_a_broken_one(table_run, tmp_path, name):
    run = shutil.copytree(table_run, tmp_path / "run")
    (run / name).write_bytes(b"{}")
    with pytest.raises(RunError, match="is damaged"):
        pa.load_run(run)
    (run / name).unlink()
    with pytest.raises(RunError, match="expected"):
        pa.load_run(run)
