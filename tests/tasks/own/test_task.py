"""Runs on one's own data: classes, numbers, images."""

import dataclasses
import json

import numpy as np
import pytest

pytest.importorskip("lightning_fabric")

from primal_attention.tasks import get_task
from primal_attention.tasks.base import DataError
from primal_attention.tasks.own import OwnConfig, task_of
from primal_attention.train import resume, train
from primal_attention.train.config import settings_for

SMALL = {"width": 8, "heads": 2, "feedforward": 8, "rank": 2, "epochs": 1}


@pytest.fixture
def values(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.random(30)
    x = y[:, None, None] * np.ones((30, 2, 9)) + 0.01 * rng.standard_normal((30, 2, 9))
    np.savez(tmp_path / "values.npz", X=x, y=100 * y)
    return tmp_path / "values.npz"


def test_what_it_is_is_found_out_and_said(sensors, values):
    where = {"data": str(sensors), "target": "state", "id": "machine"}
    name, said = task_of(where | {"time": "at"})
    assert name == "own/classes"
    assert "24 series, 2 channels, lengths 8 to 12, 2 classes" in said
    name, said = task_of({"data": str(values)})
    assert name == "own/values"
    assert "so a regression" in said
    wide = values.with_name("wide.csv")
    wide.write_text("a,b,y\n1,2,u\n3,4,v\n5,6,v\n")
    assert "for a table of rows name the task table/csv" in task_of({"data": str(wide)})[1]
    with pytest.raises(DataError, match="no TASK and no --data"):
        task_of({})


def test_the_run_knows_how_to_read_new_cases(own_run, sensors):
    stored = json.loads((own_run / "reader.json").read_text())
    assert stored["classes"] == ["ok", "worn"]
    assert stored["columns"]["channels"] == ["vibration", "current"]
    assert stored["shape"] == {"classes": 2, "channels": 2, "max_length": 12}
    config = json.loads((own_run / "config.json").read_text())
    assert config["data"] == str(sensors)
    result = json.loads((own_run / "result.json").read_text())
    assert result["label"] == "validation accuracy; no test set here"


def test_a_number_for_a_series(values, tmp_path):
    config = settings_for("", ("primal",), data=str(values), lr=1e-2, **{**SMALL, "epochs": 30})
    result = train(config, root=tmp_path, name="run")
    assert result.r2 > 0.8
    assert 0 < result.mae <= result.rmse < 15  # in the unit of the targets, whose deviation is 29
    assert result.cases == 6
    assert resume(tmp_path / "run") == result


def test_a_test_set_of_its_own(sensors, tmp_path):
    where = {"data": str(sensors), "test": str(sensors), "target": "state", "id": "machine"}
    config = settings_for("own/classes", ("primal",), time="at", **where, **SMALL)
    result = train(config, root=tmp_path)
    assert result.label == "test accuracy of the last epoch"
    assert result.cases == 24


def test_classes_that_training_did_not_have(sensors, tmp_path):
    other = tmp_path / "other.csv"
    other.write_text(sensors.read_text().replace("worn", "new"))
    where = {"data": str(sensors), "test": str(other), "target": "state", "id": "machine"}
    task = get_task("own/classes").bound(settings_for("own/classes", time="at", **where, **SMALL))
    with pytest.raises(DataError, match=r"'m0' has the class 'new'; expected one of ok, worn"):
        task.load(splits=["train", "test"])


def test_words_are_no_numbers(sensors):
    where = {"data": str(sensors), "target": "state", "id": "machine", "time": "at"}
    task = get_task("own/values").bound(settings_for("own/values", **where))
    with pytest.raises(DataError, match=r"'m0' has the target 'worn'; expected a finite number"):
        task.load(splits=["train"])


def test_held_out_values_are_low_middle_and_high(values):
    task = get_task("own/values").bound(settings_for("", data=str(values)))
    whole = task.load(splits=["train"])["train"]
    kept, held = task.hold_out(whole, 0.2, 0)
    assert sorted([*kept, *held]) == list(range(30))
    order = np.argsort(np.argsort(whole.values))[held]
    assert order.min() < 10 <= np.median(order) < 20 <= order.max()


def test_a_run_needs_its_data():
    with pytest.raises(ValueError, match="data is None; expected a file or a folder"):
        OwnConfig(task="own/classes").validate()


def test_the_place_of_the_data_does_not_decide_a_run(sensors):
    where = {"target": "state", "id": "machine", "time": "at"}
    one = settings_for("own/classes", data=str(sensors), **where, **SMALL)
    other = dataclasses.replace(one, data="elsewhere.csv")
    assert one.fingerprint() == other.fingerprint()
    assert one.fingerprint() != dataclasses.replace(one, target="vibration").fingerprint()
    assert one.stem() == "sensors-primal+primal"


def test_images_in_folders(tmp_path):
    pytest.importorskip("transformers")
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for name, level in (("dark", 40), ("light", 200)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(6):
            pixels = (level + rng.integers(0, 40, (20, 16, 3))).astype(np.uint8)
            image.fromarray(pixels).save(tmp_path / "photos" / name / f"{i}.png")
    assert task_of({"data": str(tmp_path / "photos")})[0] == "own/images"
    small = SMALL | {"batch_size": 4, "warmup_steps": 0, "epochs": 4, "lr": 1e-2}
    config = settings_for("", ("primal",), data=str(tmp_path / "photos"), **small)
    run = train(config, root=tmp_path, name="run").run
    import primal_attention as pa

    model = pa.load_run(run)
    assert model.classes == ("dark", "light")
    assert model.reader.shape["size"] == 16
    found = model.predict(tmp_path / "photos")
    assert list(found) == ["dark"] * 6 + ["light"] * 6
