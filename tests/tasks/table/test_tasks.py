"""Tasks of tables: what a file asks for is found out and said, and small files get small steps."""

import pytest

from primal_attention.tasks import DataError, get_task
from primal_attention.tasks.table.tasks import sized
from primal_attention.train.config import TableConfig, settings_for


@pytest.fixture
def write(tmp_path):
    def made(target, rows=20):
        lines = [f"{i % 7},{'uvw'[i % 3]},{target(i)}" for i in range(rows)]
        path = tmp_path / "t.csv"
        path.write_text("\n".join(["a,b,y", *lines]) + "\n")
        return str(path)

    return made


def test_classes_or_numbers_are_found_out(write):
    task, said = get_task("table/csv").found({"data": write(lambda i: "no" if i % 4 else "yes")})
    assert task == "table/classes"
    assert "20 rows, 1 number, 1 category (b); 'y' has 2 classes (the largest has 75.0 %)" in said
    path = write(lambda i: i + 0.5)
    task, said = get_task("table/csv").found({"data": path})
    assert task == "table/values"
    assert "numbers from 0.5 to 19.5, so a regression (table/values)" in said
    assert settings_for("table/csv", data=path).task == "table/values"
    named = settings_for("table/classes", data=write(lambda i: i % 3))  # who names it decides
    assert named.task == "table/classes"


def test_settings_follow_from_the_rows(write):
    config = settings_for("table/csv", data=write(lambda i: i % 2))
    assert config.batch_size == 5  # 3 of 10 among 17 rows
    assert config.epochs * config.epoch_steps == 400
    assert settings_for("table/csv", data=config.data, batch_size=3).batch_size == 3
    large = sized(50_000, 256)
    assert large["batch_size"] == 256
    assert large["epochs"] * 20 >= 12 * 50_000 / 256


@pytest.mark.parametrize(
    ("target", "rows", "words"),
    [
        (lambda i: "same", 20, "has the class 'same' alone; expected two or more"),
        (lambda i: f"c{i}", 20, "has 20 classes with one case each"),
        (lambda i: i % 2, 9, "has 9 rows; expected at least 10"),
    ],
)
def test_targets_that_cannot_be_learned(write, target, rows, words):
    from primal_attention.train.run import load

    with pytest.raises(DataError, match=words):
        load(settings_for("table/csv", data=write(target, rows)))


def test_numbers_that_are_none(write):
    from primal_attention.train.run import load

    with pytest.raises(DataError, match=r"has the target 2\.5 alone; expected different ones"):
        load(settings_for("table/csv", data=write(lambda i: 2.5)))
    with pytest.raises(DataError, match="has the target 'no'; expected finite numbers for table/v"):
        load(settings_for("table/values", data=write(lambda i: "no" if i else 1)))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"attention": ("softmax", "primal")}, "expected one name: the layers of a table are"),
        ({"attention": ("none", "none")}, "cannot attend to the rows of a context"),
        ({"eta": 0.1}, "eta is 0.1; expected 0"),
        ({"row_context": "sets"}, "row_context is 'sets'"),
        ({"task": "table/csv"}, "expected table/classes or table/values"),
        ({"data": None}, "data is None; expected a file"),
    ],
)
def test_settings_that_do_not_fit(write, changes, words):
    given = {"task": "table/classes", "data": write(lambda i: i % 2)} | changes
    with pytest.raises(ValueError, match=words):
        TableConfig(**given).validate()


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match="is not there; expected a csv file"):
        settings_for("table/csv", data=str(tmp_path / "x.csv"))
    with pytest.raises(DataError, match="expected --data FILE, a csv file"):
        settings_for("table/csv", target="y")


def test_the_fingerprint_sees_every_cell(write, tmp_path):
    def fingerprint(old="", new=""):
        path = write(lambda i: i % 2)
        text = (tmp_path / "t.csv").read_text().replace(old, new, 1)
        (tmp_path / "t.csv").write_text(text)
        config = settings_for("table/csv", data=path)
        task = get_task(config.task).bound(config)
        return task.load(splits=("train",))["train"].fingerprint()

    whole = fingerprint()
    assert fingerprint() == whole
    assert fingerprint("3,u,1", "3.5,u,1") != whole
    assert fingerprint("3,u,1", "3,v,1") != whole
    assert fingerprint("3,u,1", "3,u,0") != whole
