"""Every command line of the documentation is executed, on a small scale: see `reduced.py`."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from . import pages, world
from .reduced import NAMES, NOT_RUN, reason, reduced

for extra in ("typer", "lightning_fabric", "transformers", "h5py", "PIL", "matplotlib", "optuna"):
    pytest.importorskip(extra)

# what new.csv is, where it is not the series of sensors, and later.csv, where it is not people
NEW = {"events.md": "log.csv", "sets.md": "people.csv"}
LATER = {"tutorials/sensors.md": "later-sensors.csv"}


def inline(page: str) -> list[list[str]]:
    """The command lines between backticks, but for those that only name a command."""
    found = re.findall(r"`primal ([a-z]+ [^`\n]+)`", pages.bare(page))
    return [shlex.split(line) for line in found if line not in NAMES]


def lines(page: str) -> list[list[str]]:
    blocks = [] if page == README else pages.commands(page)  # those: tests/test_readme.py
    found = [*blocks, *inline(page)]
    once = list({tuple(words): None for words in found})
    return [list(words) for words in once if reason(list(words)) is None]


README = "../README.md"
PAGES = [page for page in [README, *pages.PAGES] if lines(page)]
SCRIPTS = sorted(
    {
        script
        for page in [README, *pages.PAGES]
        for script in re.findall(
            r"python ((?:-m )?(?:benchmarks|examples)[./][\w./]+)", pages.read(page)
        )
    }
)


@pytest.fixture(scope="module")
def everything(tmp_path_factory, sensors, people):
    """A folder with all that the commands name."""
    folder = tmp_path_factory.mktemp("world")
    world.make_files(folder, sensors, people)
    (folder / "data").mkdir()
    world.make_data(folder / "data")
    world.make_policies(folder / "policies")
    world.make_models(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("PRIMAL_ATTENTION_CACHE", str(folder / "cache"))
        patch.delenv("PRIMAL_ATTENTION_DATA", raising=False)
        world.make_runs(execute)
    return folder


def execute(*words: object) -> None:
    """`primal WORDS` in this process."""
    from primal_attention.cli import run

    assert run([str(word) for word in words]) == 0, words


def serve(words: list[str]) -> None:
    """The server comes up, and goes when it is asked to."""
    # of two ports the last counts; none is fixed here
    command = [sys.executable, "-m", "primal_attention", *words, "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert re.search(r":(\d+) \(", process.stderr.readline())
    finally:
        process.terminate()
        process.wait(30)
        process.stderr.close()


def test_nothing_is_left_out_without_a_reason():
    found = [words for page in pages.PAGES for words in pages.commands(page) if reason(words)]
    assert {reason(words) for words in found} == set(NOT_RUN)
    assert len(found) <= 6
    text = "".join(pages.bare(page) for page in [README, *pages.PAGES])
    assert [name for name in NAMES if f"`primal {name}`" not in text] == []
    assert sum(len(lines(page)) for page in PAGES) >= 150


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("page", PAGES)
def test_commands_run(page, everything, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "here"
    shutil.copytree(everything, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PRIMAL_ATTENTION_CACHE", str(everything / "cache"))
    monkeypatch.setenv("PRIMAL_ATTENTION_DATA", str(folder / "data"))
    # sets of the archive have a few cases here
    monkeypatch.setattr("primal_attention.tasks.uea.check_facts", lambda *_: None)
    shutil.copy(NEW.get(page, "sensors.csv"), "new.csv")
    if page in LATER:
        shutil.copy(LATER[page], "later.csv")
    wrong = []
    for line in lines(page):
        words = reduced(line)
        if words[0] == "train" and "--name" in words:  # the world has some of the names
            shutil.rmtree(Path("runs", words[words.index("--name") + 1]), ignore_errors=True)
        if words[0] == "serve":
            serve(words)
            continue
        try:
            execute(*words)
        except AssertionError:
            said = capsys.readouterr().err.strip().splitlines()[-1:]
            wrong.append(f"primal {shlex.join(line)}\n  as {shlex.join(words)}\n  {said}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_starts(script):
    """The scripts behind the pages of results take minutes to days: here they print their help."""
    if script == "benchmarks/spectrum_speed.py":
        pytest.skip("it has no options and takes minutes")
    if script == "benchmarks/triton_compile.py":
        pytest.importorskip("triton")
    words = script.split()
    command = [sys.executable, *words, "--help"]
    done = subprocess.run(command, cwd=pages.ROOT, capture_output=True, text=True, timeout=200)
    assert (done.returncode, "usage" in done.stdout) == (0, True), done.stderr
