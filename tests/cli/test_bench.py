"""`primal bench`, from the command line to its files."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("typer")

import typer
from typer.testing import CliRunner

from primal_attention.bench.memory import MemoryMeter, Peak
from primal_attention.cli.bench import EPILOG, bench
from primal_attention.cli.settings import UsageError

TINY = ["--width", 16, "--rank", 4, "--threads", 1, "--repeats", 2, "--lengths", "16:32:x2"]


@pytest.fixture
def run():
    """Runs the command alone: exit code, stdout, stderr; usage errors are raised."""
    app = typer.Typer()
    app.command(epilog=EPILOG)(bench)

    def call(*words):
        done = CliRunner().invoke(app, [str(word) for word in words])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done

    return call


@pytest.fixture
def no_meter(monkeypatch):
    """Memory is not measured, which takes a process that imports torch: see tests/bench."""
    monkeypatch.setattr(MemoryMeter, "peak", lambda *job, **options: Peak(5.0, 1e-6))


@pytest.mark.usefixtures("no_meter")
def test_a_tiny_benchmark(run, tmp_path):
    pytest.importorskip("matplotlib")
    (tmp_path / "a.json").write_text('{"softmax": 0.9, "primal": 0.95, "primal:tied": 0.9}')
    words = [*TINY, "--attention", "softmax,primal,floor", "--out", "out"]
    done = run(*words, "--accuracies", "a.json")
    assert done.exit_code == 0
    folder = tmp_path / "out"
    assert {path.name for path in folder.iterdir() if path.name[0] != "."} == {
        "results.json", "results.csv", "table.md",
        "growth.png", "growth.svg", "bubbles.png", "bubbles.svg",
    }  # fmt: skip
    for title in ("Time, ms", "multiples of the floor", "multiples of softmax", "Peak memory"):
        assert title in done.stdout
    lines = done.stderr.splitlines()
    assert lines[0].startswith("Forward and backward pass of an attention block: width 16")
    assert lines[0].endswith("6 cells")
    assert lines[1] == "out"
    assert len([line for line in lines if line.startswith("N = ")]) == 6
    assert "accuracies of 3 names, 2 measured here" in lines
    found = json.loads((folder / "results.json").read_text())
    assert found["command"].startswith(
        "primal bench block --attention softmax,primal,floor --lengths "
    )
    # again: everything is known, and printed as JSON
    again = run(*words, "--json")
    assert again.exit_code == 0
    assert again.stderr.splitlines()[0].endswith("6 cells, 6 of them known from before")
    printed = json.loads(again.stdout)
    assert printed.pop("folder") == "out"
    assert printed == found


@pytest.mark.usefixtures("no_meter")
def test_references_come_along_and_failures_are_told(run):
    done = run(*TINY, "--attention", "softmax:dropout=2", "--quiet", "--pass", "forward")
    assert done.exit_code == 0
    assert done.stderr == ""
    assert "floor" in done.stdout
    reason = "ValueError: dropout is 2; expected a number in [0, 1)"
    assert f"softmax:dropout=2 at N = 16, 32: error: {reason}" in done.stdout
    assert "bench/block-forward-001" in done.stdout


@pytest.mark.usefixtures("no_meter")
def test_all_tasks_of_the_arena(run, tmp_path):
    words = ["lra", "--width", 16, "--rank", 4, "--threads", 1, "--repeats", 1, "--lengths", 16,
             "--batch-size", 2, "--attention", "softmax+primal", "--out", "out"]  # fmt: skip
    done = run(*words)
    assert done.exit_code == 0
    assert "Seconds per 1,000 training steps" in done.stdout
    assert "softmax+primal" in done.stdout
    lines = done.stderr.splitlines()
    assert lines[0] == "The models of 5 tasks of the Long-Range Arena: 15 cells"
    assert sum(line.startswith("Training step of the model of lra/") for line in lines) == 5
    assert (tmp_path / "out" / "lra.md").exists()
    again = run(*words, "--json", "--quiet")
    assert again.stderr == ""
    printed = json.loads(again.stdout)
    assert len(printed["cells"]) == 15
    assert printed["cells"][2]["faster_than_materialised"] > 0
    for words, message in (
        (["lra", "--lengths", "16,32"], "expected one number"),
        (["lra", "--heads", 3], "heads is 3"),
        (["lra", "--accuracies", tmp_path], "expected one task, such as lra/text"),
    ):
        with pytest.raises(UsageError, match=message):
            run(*words)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--attention", "sofmax"], "did you mean 'softmax'?"),
        (["--attention", "primal:tide"], "did you mean 'tied'?"),
        (["--lengths", "8:4:x2"], "lengths is '8:4:x2'"),
        (["decoder"], "what is 'decoder'"),
        (["--attention", "softmax+primal"], "names the attentions of 2 layers"),
        (["--pass", "train"], "did you mean 'training'?"),
        (["--dtype", "int8"], "dtype is 'int8'"),
        (["--heads", 3], "heads is 3"),
        (["--cell-budget", 0], "cell_budget is 0"),
        (["--cell-budget", "soon"], "the time is 'soon'"),
        (["--option", "performer.featurs=8"], "did you mean 'features'?"),
    ],
)
def test_wrong_usage(run, words, expected, tmp_path):
    with pytest.raises(UsageError) as error:
        run(*TINY, *words)
    assert expected in error.value.format_message()
    assert not (tmp_path / "bench").exists()


def test_wrong_accuracies_are_told_before_the_work(run, tmp_path):
    (tmp_path / "a.json").write_text("[]")
    with pytest.raises(ValueError, match=r"expected \{name: accuracy\}"):
        run(*TINY, "--accuracies", "a.json")
    assert not (tmp_path / "bench").exists()


def test_an_interrupt_says_how_to_continue(run, monkeypatch):
    def interrupted(plan, out, *, watch):
        watch.started("some where", "", 4, 0)
        raise KeyboardInterrupt

    monkeypatch.setattr("primal_attention.bench.jobs.run_bench", interrupted)
    done = run(*TINY, "--attention", "primal")
    assert done.exit_code == 130
    last = done.stderr.splitlines()[-1]
    assert last.startswith("interrupted; continue with: primal bench block --attention floor,")
    assert last.endswith("--out 'some where'")


def test_the_command_is_imported_without_torch():
    script = (
        "import sys; import primal_attention.cli.bench; "
        "print({'torch', 'numpy', 'matplotlib'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr
