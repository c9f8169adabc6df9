"""Folders in the format of the Hub."""

import pytest

pytest.importorskip("lightning_fabric")

import primal_attention as pa
from primal_attention.runs.errors import RunError
from primal_attention.train.trained import hub


def test_the_card_says_what_it_is_and_how_good(own_run):
    model = pa.load_run(own_run)
    text = hub.card(model, {})
    yaml = pytest.importorskip("yaml")
    _, head, body = text.split("---", 2)
    assert yaml.safe_load(head)["library_name"] == "primal-attention"
    assert "2 classes" in body
    assert "pa.load_run" in body
    assert "%: validation accuracy; no test set here." in body


def test_the_tags_say_what_is_predicted(own_run, table_run, monkeypatch):
    series, table = pa.load_run(own_run), pa.load_run(table_run)

    def tagged(model):
        return hub.card(model, None).split("---")[1].split("pipeline_tag: ")[1].split()

    assert tagged(series)[::5] == ["other", "time-series-classification"]
    assert tagged(table)[0] == "tabular-classification"
    monkeypatch.setattr(type(series), "predicts_values", True)
    monkeypatch.setattr(type(table), "predicts_values", True)
    assert tagged(series)[::5] == ["other", "time-series-regression"]
    assert tagged(table)[0] == "tabular-regression"


def test_pull_opens_what_was_downloaded(own_run, tmp_path, monkeypatch):
    """Without a network: the cache of the Hub, filled by hand, is what pull reads."""
    pytest.importorskip("huggingface_hub")
    revision = "0" * 40
    place = tmp_path / "models--me--sensors"
    hub.save_folder(pa.load_run(own_run), place / "snapshots" / revision)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text(revision)
    found = hub.pull_run("me/sensors", cache_dir=tmp_path, local_files_only=True)
    assert found.classes == ("ok", "worn")


def test_a_file_is_no_folder(own_run, tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(RunError, match="taken is a file; expected a folder"):
        hub.save_folder(pa.load_run(own_run), tmp_path / "taken")
