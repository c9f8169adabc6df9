"""The live line and the plain lines, from made-up events."""

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from primal_attention.cli.progress import Display, Watch
from primal_attention.tasks.objective import Found
from primal_attention.tasks.stores import Building
from primal_attention.train import EpochEvent, RunConfig, RunStart, StepEvent

EPOCHS, BATCHES = 50, 4


def story(observer, ksvd=0.125):
    """A whole run, told as the engine tells it."""
    config = RunConfig(task="uea/JapaneseVowels", epochs=EPOCHS)
    steps = EPOCHS * BATCHES
    observer.run_started(RunStart(Path("runs/x"), config, 1234, "uea, 1,234 parameters", 0, steps))
    for epoch in range(1, EPOCHS + 1):
        for batch in range(1, BATCHES + 1):
            step = (epoch - 1) * BATCHES + batch
            observer.step(StepEvent(epoch, step, steps, batch, BATCHES, 0.5, ksvd, 1.0, 1e-3))
        found = Found({}, "validation 90.0 %")
        observer.epoch(EpochEvent(epoch, EPOCHS, step, 0.5, ksvd, found, 0.9, 3, 0.95))


def written(terminal, tell=story, quiet=False, **options):
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=80, color_system=None)
    with Display(console, quiet=quiet) as display:
        tell(Watch(display), **options)
    return file.getvalue()


def drawn(text):
    """The lines of a terminal, as they were drawn one over the other."""
    return [re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", part) for part in re.split(r"[\r\n]+", text)]


def stores(observer):
    """Two stores are built, then a run begins."""
    for name, total in (("lra/text train", 9000), ("a.tar", None)):
        for done in range(0, 10_000, 1000):
            observer.building(Building(name, done, total))
    story(observer)


def test_plain_lines_are_few():
    text = written(False)
    epochs = [line for line in text.splitlines() if line.startswith("epoch")]
    assert len(epochs) == 2, "the first and the last: all others came too soon"
    assert epochs[0].startswith("epoch  1/50")
    assert epochs[1].startswith("epoch 50/50")
    assert "task 0.500 KSVD 0.125" in epochs[1]
    assert "validation 90.0 % (best 95.0 %)" in epochs[1]
    assert "1,234 parameters" in text
    assert "\x1b" not in text


def test_plain_lines_without_ksvd_loss():
    assert "KSVD" not in written(False, ksvd=None)


def test_live_line_shows_everything_in_one_line(monkeypatch):
    monkeypatch.setattr("primal_attention.cli.progress.LIVE_SECONDS", -1.0)
    text = written(True)
    lines = drawn(text)
    last = [line for line in lines if line.startswith("epoch")][-1]
    for part in (
        "epoch 50/50",
        "step 4/4",
        "task 0.500",
        "KSVD 0.125",
        "validation 90.0 %",
        "left",
    ):
        assert part in last
    assert max(map(len, lines)) <= 80
    assert text.rstrip().endswith("\x1b[2K"), "the line is gone at the end"


def test_stores_in_plain_lines():
    text = written(False, stores)
    assert text.splitlines()[:3] == [
        "reading lra/text train, once: 0 of 9,000 cases",
        "reading lra/text train, once: 9,000 of 9,000 cases",
        "reading a.tar, once: 0 cases",
    ]
    assert "epoch 50/50" in text


def test_stores_in_a_live_line(monkeypatch):
    monkeypatch.setattr("primal_attention.cli.progress.LIVE_SECONDS", -1.0)
    lines = [line for line in drawn(written(True, stores)) if line]
    assert any(re.match(r"reading lra/text train, once: .* 4,000 of 9,000 cases", x) for x in lines)
    assert any(re.match(r"reading a\.tar, once: .* 9,000 cases ", x) for x in lines)
    assert max(map(len, lines)) <= 80
    assert "epoch 50/50" in lines[-1]


def test_live_line_is_drawn_seldom():
    assert written(True).count("task 0.500") < 10


@pytest.mark.parametrize("terminal", [True, False])
def test_quiet_is_silent(terminal):
    assert written(terminal, stores, quiet=True) == ""


def test_a_counter(monkeypatch):
    file = io.StringIO()
    with Display(Console(file=file, force_terminal=False, width=80)) as display:
        tell = display.counter("ListOps")
        for done in range(10):
            tell(done, 9)
    assert file.getvalue().splitlines() == ["ListOps: 0 of 9 parts", "ListOps: 9 of 9 parts"]
    monkeypatch.setattr("primal_attention.cli.progress.LIVE_SECONDS", -1.0)
    file = io.StringIO()
    terminal = Console(file=file, force_terminal=True, width=80, color_system=None)
    with Display(terminal) as display:
        display.counter("ListOps")(3, 9)
    assert any(re.match("ListOps .* 3 of 9 left", line) for line in drawn(file.getvalue()))
