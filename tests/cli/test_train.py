"""Real runs through the command: train, interrupt, resume, seeds."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from primal_attention.cli.progress import Watch

pytest.importorskip("lightning_fabric")

LABEL = "test accuracy of the last epoch"


@pytest.mark.usefixtures("pictures")
def test_train_prints_the_result_and_fills_the_folder(primal, tiny):
    done = primal(*tiny, "--name", "mine")
    assert done.code == 0, done.err
    assert LABEL in done.out
    assert "holdout" in done.out
    assert "runs/mine" in done.out
    assert "next" in done.out
    assert "--seeds 0-4" in done.out
    assert "epoch 2/2" in done.err
    assert "epoch" not in done.out.replace("the last epoch", "").replace("epoch 1 was", "").replace(
        "epoch 2 was", ""
    ).replace("--epochs 2", "")
    run = Path("runs/mine")
    config = json.loads((run / "config.json").read_text())
    assert (config["width"], config["epochs"], config["attention"]) == (16, 2, ["primal", "primal"])
    for name in ("metrics.jsonl", "result.json", "curves.png", "confusion.png"):
        assert (run / name).stat().st_size > 0


def test_json_goes_to_stdout_alone(primal, tiny):
    done = primal(*tiny, "--json", "--protocol", "paper", "--attention", "softmax,primal")
    result = json.loads(done.out)
    assert result["protocol"] == "paper"
    assert "selected on the test set" in result["label"]
    assert Path(result["run"], "result.json").exists()
    assert sum(map(sum, result["confusion"])) == 40
    assert "epoch 2/2" in done.err


def test_quiet_says_nothing_but_the_result(primal, tiny):
    done = primal(*tiny, "--quiet")
    assert done.err == ""
    assert LABEL in done.out


def test_a_rank_that_reduces_nothing_is_noted(primal, tiny):
    note = "rank = 8 is not below the width of a head, 16 / 2: it reduces nothing."
    assert note in primal(*tiny, "--rank", "8", "--name", "full").err
    assert "reduces nothing" not in primal(*tiny, "--rank", "7", "--name", "low").err


def test_seeds_give_mean_and_interval(primal, tiny):
    done = primal(*tiny, "--seeds", "0,2", "--name", "both", "-q")
    assert done.code == 0, done.err
    assert "95 % interval" in done.out
    assert LABEL in done.out
    assert Path("runs/both/seed-2/result.json").exists()
    again = primal("resume", "runs/both", "--json")
    found = json.loads(again.out)
    assert set(found["accuracies"]) == {"0", "2"}
    assert found["interval"][0] <= found["mean"] <= found["interval"][1]


def test_interrupted_run_tells_how_to_resume_and_ends_the_same(primal, tiny, monkeypatch):
    whole = json.loads(primal(*tiny, "--json", "-q").out)

    def interrupt(self, event):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Watch, "epoch", interrupt)
        done = primal(*tiny, "--name", "stopped one")
    assert done.code == 130
    assert done.out == ""
    assert "primal resume 'runs/stopped one'" in done.err
    assert "Traceback" not in done.err
    assert not Path("runs/stopped one/result.json").exists()

    done = primal("resume", "runs/stopped one", "--json")
    assert done.code == 0
    assert "from step" in done.err
    resumed = json.loads(done.out)
    for name in ("accuracy", "epoch", "confusion", "label"):
        assert resumed[name] == whole[name]


def test_interrupted_seeds_resume_by_their_common_folder(primal, tiny, monkeypatch):
    def interrupt(self, event):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Watch, "epoch", interrupt)
        done = primal(*tiny, "--seeds", "0-1", "--name", "two")
        assert done.code == 130
        assert "primal resume runs/two\n" in done.err
        assert "primal resume runs/two\n" in primal("resume", "runs/two").err
    done = primal("resume", "runs/two", "--json")
    assert set(json.loads(done.out)["accuracies"]) == {"0", "1"}


def test_a_finished_run_is_printed_again(primal, tiny):
    first = json.loads(primal(*tiny, "--name", "mine", "--json").out)
    assert json.loads(primal("resume", "runs/mine", "--json").out) == first


@pytest.mark.usefixtures("pictures")
def test_a_run_without_pictures_is_still_a_run(primal, tiny, monkeypatch):
    def fail(*_args, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("primal_attention.report.style.save", fail)
    monkeypatch.setattr("primal_attention.report.figures.save", fail)
    done = primal(*tiny, "-q")
    assert done.code == 0
    assert LABEL in done.out
    assert "no pictures" in done.err


@pytest.mark.slow
def test_ctrl_c_in_a_process_of_its_own(tiny, tmp_path):
    words = [*map(str, tiny), "--epochs", "100000", "--name", "mine"]
    process = subprocess.Popen(
        [sys.executable, "-m", "primal_attention", *words],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    with process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("epoch"):
                break
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
    assert process.returncode == 130
    assert "primal resume runs/mine" in rest
    assert "Traceback" not in rest
