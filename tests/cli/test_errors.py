"""Exit codes: 2 for wrong usage with the near name, 1 for failures; always one line on stderr."""

from pathlib import Path

import pytest

from primal_attention.cli import run

GOOD = "uea/BasicMotions"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["trian"], "'train'"),
        (["train"], "TASK"),
        (["train", "uea/BasicMotion"], "did you mean 'uea/BasicMotions'?"),
        (["train", "JapaneseVowels"], "did you mean 'uea/JapaneseVowels'?"),
        (["train", GOOD, "--widht", "3"], "--width"),
        (["train", GOOD, "--width", "wide"], "--width"),
        (["train", GOOD, "--width", "30"], "heads is 4"),
        (["train", GOOD, "--attention", "primall"], "did you mean 'primal'?"),
        (["train", GOOD, "--attention", "softmax,primall"], "did you mean 'primal'?"),
        (["train", GOOD, "--attention", ""], "unknown attention ''"),
        (["train", GOOD, "--option", "primal.anchors=0"], "anchors is 0; expected"),
        (["train", GOOD, "--recipe", "defalt"], "did you mean 'default'?"),
        (["train", GOOD, "--protocol", "papers"], "did you mean 'paper'?"),
        (["train", GOOD, "--optimizer", "adamx"], "did you mean 'adam"),
        (["train", GOOD, "--seeds", "4-0"], "--seeds is '4-0'"),
        (["train", GOOD, "--seed", "1", "--seeds", "0-4"], "expected one of them"),
        (["train", GOOD, "--seed", "-1"], "seed is -1"),
        (["train", GOOD, "--clip", "much"], "expected a number or none"),
        (["train", GOOD, "--data-dir", "nowhere"], "nowhere"),
        (["resume", "nowhere"], "nowhere"),
        (["data", "--data-dir", "nowhere"], "nowhere"),
        (["list", "--what"], "--what"),
    ],
)
def test_wrong_usage(primal, words, expected):
    done = primal(*words)
    assert done.code == 2
    assert done.out == ""
    assert expected in done.err
    assert done.err.startswith("primal: ")
    assert done.err.count("\n") == 1
    assert not Path("runs").exists()


def test_missing_data_is_a_failure(primal):
    done = primal("train", "uea/Heartbeat")
    assert done.code == 1
    assert done.out == ""
    assert "Heartbeat_TRAIN.ts" in done.err
    assert done.err.count("\n") == 1


def test_a_folder_that_is_no_run_is_a_failure(primal, tmp_path):
    done = primal("resume", tmp_path)
    assert done.code == 1
    assert "not a run folder" in done.err


def test_a_name_that_is_taken_is_a_failure(primal, tiny):
    assert primal(*tiny, "--name", "mine", "-q").code == 0
    before = Path("runs/mine/result.json").read_bytes()
    done = primal(*tiny, "--name", "mine", "-q")
    assert done.code == 1
    assert "exists already" in done.err
    assert Path("runs/mine/result.json").read_bytes() == before


def test_debug_shows_the_traceback(primal, tmp_path, monkeypatch):
    assert "Traceback" not in primal("resume", tmp_path).err
    monkeypatch.setenv("PRIMAL_DEBUG", "1")
    done = primal("resume", tmp_path)
    assert done.code == 1
    assert "Traceback" in done.err


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (OSError(28, "No space left on device", "x"), "No space left on device: x"),
        (ModuleNotFoundError("training needs y; install 'z'"), "training needs y; install 'z'"),
        (RuntimeError("two\nlines"), "RuntimeError: two lines (PRIMAL_DEBUG=1 shows where)"),
        (ZeroDivisionError(), "ZeroDivisionError: no message (PRIMAL_DEBUG=1 shows where)"),
    ],
)
def test_any_error_is_one_line(monkeypatch, capsys, error, sentence):
    def fail(data_dir):
        raise error

    monkeypatch.setattr("primal_attention.tasks.data_status", fail)
    assert run(["data"]) == 1
    assert capsys.readouterr().err == f"primal: {sentence}\n"


def test_interrupted_before_a_run_began(monkeypatch, capsys):
    def interrupt(data_dir):
        raise KeyboardInterrupt

    monkeypatch.setattr("primal_attention.tasks.data_status", interrupt)
    assert run(["data"]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_former_names_of_options_go_on_working(primal):
    one = ("cost", "--attention", "linear", "--json")
    now = primal(*one, "--width", 64, "--lengths=1k", "--batch-size", 2)
    former = primal(*one, "--d", 64, "--length=1k", "--batch", 2)
    assert former.code == 0, former.err
    assert former.out == now.out
    done = primal("bench", "--length", 16, "--budget", 0)
    assert (done.code, "cell_budget is 0" in done.err) == (2, True)
    done = primal("data", "get", "cifar1", "--folder", "x")
    assert "unknown data set" in done.err
    done = primal("train", "uea/BasicMotions", "--accelerator", "gpu")
    assert "accelerator is 'gpu'" in done.err
    assert "No such option" in primal("convert", ".", "--d", 8).err
