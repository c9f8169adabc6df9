"""Folders and files of a run: whole or not there, and never overwritten."""

import json
import os
import threading

import pytest

from primal_attention.runs.files import explained, read_json, write_bytes, write_json
from primal_attention.runs.folder import create_folder, folder_stem, locked, status_kept
from primal_attention.runs.metrics import MetricsFile
from primal_attention.train import RunError, read_metrics


def test_names_are_counted(tmp_path):
    found = [create_folder(tmp_path / "runs", None, "a", {"x.json": i}).name for i in range(3)]
    assert found == ["a-001", "a-002", "a-003"]
    assert read_json(tmp_path / "runs" / "a-002" / "x.json") == 1
    assert len(list((tmp_path / "runs").iterdir())) == 3


def test_many_at_once_get_names_of_their_own(tmp_path):
    found = []

    def create():
        found.append(create_folder(tmp_path, None, "a", {"x.json": 1}).name)

    threads = [threading.Thread(target=create) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [f"a-{n:03d}" for n in range(1, 9)]


def test_a_given_name_is_used_once(tmp_path):
    path = create_folder(tmp_path, "mine", "a", {"x.json": 1})
    with pytest.raises(RunError, match=r"mine exists already; continue it with `primal resume"):
        create_folder(tmp_path, "mine", "a", {"x.json": 2})
    assert read_json(path / "x.json") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden"])
def test_bad_names(name, tmp_path):
    with pytest.raises(RunError, match="expected a word without slashes"):
        create_folder(tmp_path, name, "a", {})


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_read_only(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(RunError, match=r"cannot make a run folder in .*: permission denied"):
        create_folder(tmp_path, None, "a", {})


def test_stem():
    stem = folder_stem("uea/PEMS-SF", ("softmax", "primal"))
    assert stem == "uea-PEMS-SF-softmax+primal"


def test_lock(tmp_path):
    with (
        locked(tmp_path),
        pytest.raises(RunError, match="is in use by another process"),
        locked(tmp_path),
    ):
        pass
    with locked(tmp_path):
        pass


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (KeyboardInterrupt(), "interrupted", None),
        (RunError("a reason"), "failed", "a reason"),
        (MemoryError(), "failed", "MemoryError()"),
    ],
)
def test_status_of_failures(error, status, reason, tmp_path):
    def work():
        assert read_json(tmp_path / "status.json")["status"] == "running"
        raise error

    with pytest.raises(type(error)), status_kept(tmp_path):
        work()
    assert read_json(tmp_path / "status.json") == {"status": status, "reason": reason}


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "x.json"
    write_json(path, {"a": 1})
    monkeypatch.setattr(os, "fsync", lambda handle: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(OSError, match="full"):
        write_json(path, {"a": 2})
    assert read_json(path) == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]


def test_json_is_strict(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "x.json", float("nan"))
    write_bytes(tmp_path / "x.json", b"{")
    with pytest.raises(RunError, match=r"x.json is not JSON"):
        read_json(tmp_path / "x.json")
    with pytest.raises(RunError, match=r"cannot read .*: no such file"):
        read_json(tmp_path / "y.json")


def test_explained():
    with pytest.raises(RunError, match="cannot do it: no space left; sorry"):  # noqa: SIM117
        with explained("do it", "; sorry"):
            raise OSError(28, "No space left")


# -- metrics ---------------------------------------------------------------------------------------


def test_metrics_are_appended_and_cut(tmp_path):
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(path)
    file.add("step", {"loss": 0.1 + 0.2})
    kept = file.save()
    file.add("step", {"loss": 2.0})
    file.flush()
    file.close()
    assert [line["loss"] for line in read_metrics(tmp_path)] == [0.1 + 0.2, 2.0]
    assert kept == path.read_bytes().index(b"\n") + 1
    again = MetricsFile(path, kept)
    again.add("epoch", {"loss": 3.0})
    again.flush()
    again.close()
    lines = read_metrics(tmp_path)
    assert [(line["kind"], line["loss"]) for line in lines] == [("step", 0.1 + 0.2), ("epoch", 3.0)]


def test_metrics_shorter_than_the_checkpoint(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    with pytest.raises(RunError, match="is shorter than its checkpoint says"):
        MetricsFile(tmp_path / "metrics.jsonl", 10)


def test_half_a_line_is_not_read(tmp_path):
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"a": 1}) + "\n" + '{"a": ')
    assert read_metrics(tmp_path) == [{"a": 1}]


@pytest.mark.parametrize("line", ["{", "[1]", "3", "[" * 100_000, "\x00"])
def test_a_damaged_line_is_named(line, tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"a": 1}\n' + line + "\n")
    with pytest.raises(RunError, match=r"metrics.jsonl, line 2 is "):
        read_metrics(tmp_path)


def test_lines_are_flushed_about_once_a_second(tmp_path, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("primal_attention.runs.metrics.time.monotonic", lambda: clock[0])
    file = MetricsFile(tmp_path / "metrics.jsonl")
    sizes = []
    for seconds in (0.0, 0.5, 0.6, 0.1, 1.0):
        clock[0] += seconds
        file.add("step", {})
        sizes.append(len(read_metrics(tmp_path)))
    file.close()
    assert sizes == [0, 0, 3, 3, 5]
