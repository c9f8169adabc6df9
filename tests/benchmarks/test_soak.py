"""The campaigns of `make soak`, a few cases of each; and that they find what is broken."""

import importlib
import itertools
import os
import re
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def soak(monkeypatch):
    """Gives a module of the campaigns by name."""
    monkeypatch.syspath_prepend(str(ROOT))
    threads = torch.get_num_threads()
    yield lambda name: importlib.import_module(f"benchmarks.soak.{name}")
    torch.set_num_threads(threads)
    for name in [name for name in sys.modules if name.partition(".")[0] == "benchmarks"]:
        del sys.modules[name]


@pytest.fixture
def run(soak, tmp_path):
    """Runs some cases of a campaign; gives its tally."""

    def begin(name, cases, first=0):
        campaign = soak("campaign")
        tally = campaign.Tally(name)
        soak(name).run(campaign.Budget(600.0, cases, first), tally, tmp_path)
        return tally

    return begin


def test_a_budget_ends_by_cases_and_by_time(soak):
    Budget = soak("campaign").Budget
    assert list(Budget(600.0, 3, first=5)) == [5, 6, 7]
    assert list(Budget(0.0)) == [0]  # preparation may have taken all the time
    assert list(Budget(0.0, 0)) == []
    assert list(itertools.islice(Budget(600.0), 4)) == [0, 1, 2, 3]


def test_one_line_for_each_and_one_in_all(soak, capsys):
    main = soak("__main__").main
    assert main(["masks", "--cases", "3"]) == 0
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("masks: 3 cases")
    assert last == "soak: 3 cases, 0 failed"
    with pytest.raises(SystemExit):
        main(["mask"])
    assert "the campaign is 'mask'; expected one of kills" in capsys.readouterr().err


def test_masks(run):
    tally = run("masks", 40)
    assert tally.failures == []
    assert tally.cases == 40


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (lambda layer, x, mask: layer(x)[0], "finite|not zero|off by"),  # the mask is dropped
        (lambda layer, x, mask: layer(x + x.mean(), key_padding_mask=mask)[0], "finite|off by"),
    ],
    ids=["mask dropped", "others seen"],
)
def test_a_broken_layer_is_found(broken, told, soak, run, monkeypatch):
    masks = soak("masks")

    class Broken(torch.nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.layer = layer

        def forward(self, x, context=None, key_padding_mask=None):
            if context is not None:
                return self.layer(x, context, key_padding_mask=key_padding_mask)
            if key_padding_mask is not None and key_padding_mask.dtype != torch.bool:
                key_padding_mask = key_padding_mask < 0
            return broken(self.layer, x, key_padding_mask), None

    real = masks.make_attention
    monkeypatch.setattr(masks, "available_attentions", lambda: ("softmax",))
    monkeypatch.setattr(masks, "make_attention", lambda *a, **k: Broken(real(*a, **k)))
    monkeypatch.setattr(masks.Case, "causal", False)
    tally = run("masks", 30)
    assert len(tally.failures) > 5
    assert any(re.search(told, failure) for failure in tally.failures)


@pytest.fixture
def few(soak, monkeypatch):
    """The kinds of files that need no training."""
    kinds = soak("kinds")
    chosen = {n: k for n, k in kinds.KINDS.items() if n not in ("run", "classifier", "converted")}
    monkeypatch.setattr(kinds, "KINDS", chosen)
    return kinds


def test_files(few, run):
    tally = run("files", 150)
    assert tally.failures == []
    assert tally.cases == 150
    assert tally.counts["refused in a sentence"] > 30
    assert tally.counts["read"] > 5


def raises(folder):
    raise KeyError("X")


def takes_all(folder):
    bytearray(2**40)


def writes(folder):
    with open(folder / "new", "a") as file:
        file.write("x")


def dies(folder):
    os._exit(1)


@pytest.mark.parametrize("harm", [raises, takes_all, writes, dies], ids=lambda f: f.__name__)
def test_broken_readers_are_found(harm, few, run, soak, monkeypatch):
    right = few.KINDS["csv"]
    calls = []

    def read(folder):
        calls.append(folder)
        return right.read(folder) if len(calls) == 1 else harm(folder)

    monkeypatch.setattr(few, "KINDS", {"csv": few.Kind(right.files, right.make, read)})
    tally = run("files", 3)
    assert tally.cases == 3
    assert len(tally.failures) == 3


def test_kills(run):
    tally = run("kills", 1)
    assert tally.failures == []
    assert tally.counts["kills"] >= 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kills", "pairs", "disk", "versions", "files", "memory"])
def test_more_of_each(name, run):
    tally = run(name, 6)
    assert tally.failures == []
    assert tally.cases > 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_workers(run):
    pytest.importorskip("ray")
    tally = run("workers", 1)
    assert tally.failures == []
    assert tally.counts["workers killed"] >= 1


def test_streams(soak, run, monkeypatch):
    streams = soak("streams")
    monkeypatch.setattr(streams, "TOKENS", 4_000)
    monkeypatch.setattr(streams, "CHUNK", 1_000)
    tally = run("streams", len(streams.KINDS))
    assert tally.failures == []
    assert tally.cases == len(streams.KINDS)
    assert all("off by" in figure for figure in tally.figures.values())
