"""Whole benchmarks: skipping with reasons, errors as cells, going on after a kill."""

import dataclasses
import json

import pytest
import torch

from primal_attention.bench import Plan, Settings, Watch, parse_candidates, read_results, run_bench
from primal_attention.bench import run as run_module
from primal_attention.bench.memory import NotMeasured, Peak
from primal_attention.train import RunError

SETTINGS = Settings(width=16, heads=2, rank=4, threads=1, repeats=3)


def plan(names="floor,softmax,primal", lengths=(16, 32), budget=100.0, **changes):
    settings = dataclasses.replace(SETTINGS, **changes)
    return Plan(settings, parse_candidates(names), tuple(lengths), budget)


class Meter:
    """Stands for the processes that measure memory: N seconds and N^2 bytes, and what is asked."""

    asked: list[tuple[str, int]]
    answers: dict[tuple[str, int], object]

    def __init__(self, *preload):
        type(self).asked = []

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def peak(self, maker, fields, candidate, length, *, seconds, device):
        self.asked.append((candidate, length))
        answer = self.answers.get((candidate, length), Peak(1e-3 * length, 1e-6))
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def meter(monkeypatch):
    monkeypatch.setattr(run_module, "MemoryMeter", Meter)
    monkeypatch.setattr(Meter, "answers", {}, raising=False)
    return Meter


@pytest.fixture
def fake_time(monkeypatch):
    """Replaces the clock: seconds of a candidate at a length, noted as it is timed."""
    timed = []
    seconds = {}
    now = []

    def make_step(settings, candidate, inputs):
        now[:] = [inputs.shape[1]]
        return lambda: torch.zeros(1)

    def interleaved(steps, repeats, *others, **options):
        timed.append((now[0], list(steps)))
        return {name: [seconds.get(name, lambda n: 1e-6 * n)(now[0])] * repeats for name in steps}

    monkeypatch.setattr(run_module, "make_step", make_step)
    monkeypatch.setattr(run_module, "interleaved", interleaved)
    return timed, seconds


def status(results):
    return {key: cell.status for key, cell in results.cells.items()}


@pytest.mark.slow
def test_a_real_run(tmp_path):
    class Notes(Watch):
        cells, shares = [], []

        def started(self, folder, title, cells, kept):
            self.folder = folder

        def working(self, share, text):
            self.shares.append(share)

        def found(self, cell):
            self.cells.append((cell.candidate, cell.length))

    notes = Notes()
    given = plan("floor,softmax,primal,softmax:dropout=2", lengths=(16,))
    folder = run_bench(given, tmp_path / "b", watch=notes)
    assert folder == notes.folder == tmp_path / "b"
    assert {path.name for path in folder.iterdir()} == {
        "results.json", "results.csv", "table.md", ".lock",
    }  # fmt: skip
    results = read_results(folder)
    for name in ("floor", "softmax", "primal"):
        cell = results.cells[name, 16]
        assert cell.status == "measured"
        assert len(cell.rounds) == 3
        assert min(cell.rounds) <= cell.seconds <= max(cell.rounds)
        assert cell.over_floor > 0
        assert cell.over_softmax > 0
    assert results.cells["floor", 16].over_floor == 1.0
    assert results.cells["softmax", 16].over_softmax == 1.0
    broken = results.cells["softmax:dropout=2", 16]
    assert broken.status == "error"
    assert broken.reason == "ValueError: dropout is 2; expected a number in [0, 1)"
    assert sorted(notes.cells) == sorted(results.cells)
    assert notes.shares == sorted(notes.shares)
    assert 0 <= notes.shares[0] < notes.shares[-1] <= 1
    environment = results.environment
    assert environment["torch"] == torch.__version__
    assert environment["processor"]
    assert environment["threads"] == 1


def test_time_beyond_the_budget_is_foreseen(meter, fake_time, tmp_path):
    _, seconds = fake_time
    seconds["softmax"] = lambda n: 1e-4 * n**2  # 5 calls: 0.13, 0.51, 2.0, 8.2 s
    lengths = (16, 32, 64, 128, 256)
    results = read_results(run_bench(plan(lengths=lengths, budget=3.0), tmp_path))
    found = [results.cells["softmax", n] for n in lengths]
    assert [cell.status for cell in found] == ["measured"] * 3 + ["time"] * 2
    assert "5 steps would take about 8.19 s (time grows as N^2.00)" in found[3].reason
    assert "more than the budget of 3 s" in found[3].reason
    assert found[4].reason.startswith("as at N = 128: 5 steps would take about 8.19 s")
    assert ("softmax", 128) not in meter.asked  # foreseen, not tried
    others = [results.cells[name, n] for name in ("floor", "primal") for n in lengths]
    assert {cell.status for cell in others} == {"measured"}
    assert results.cells["primal", 256].over_softmax is None  # nothing to compare with
    assert results.cells["primal", 256].over_floor == 1.0
    table = (tmp_path / "table.md").read_text()
    assert "softmax at N = 128, 256: too slow: 5 steps would take about 8.19 s" in table


def test_memory_that_is_not_there_is_foreseen(meter, fake_time, tmp_path, monkeypatch):
    monkeypatch.setattr(run_module, "free_megabytes", lambda device: 1000.0)
    lengths = (16, 32, 64, 128)
    meter.answers |= {("softmax", n): Peak(0.1 * n**2, 1e-6) for n in lengths}
    results = read_results(run_bench(plan(lengths=lengths), tmp_path))
    cell = results.cells["softmax", 128]
    assert cell.status == "memory"
    assert "would need about 1,638 MB (memory grows as N^2.00), 1,000 MB are free" in cell.reason
    assert results.cells["softmax", 64].status == "measured"
    assert results.cells["primal", 128].status == "measured"


def test_what_a_process_refuses_is_a_cell(meter, fake_time, tmp_path):
    timed, _ = fake_time
    meter.answers |= {
        ("softmax", 16): NotMeasured("memory", "one step needs more than the free 5 MB"),
        ("primal", 16): NotMeasured("error", "ValueError: odd"),
        ("primal", 32): NotMeasured("time", "one step takes more than 100 s"),
        ("primal:free", 16): Peak(7.0, 60.0),  # 5 such steps are too many
    }
    names = "floor,softmax,primal,primal:free"
    results = read_results(run_bench(plan(names, (16, 32, 64)), tmp_path))
    assert status(results) == {
        ("floor", 16): "measured", ("floor", 32): "measured", ("floor", 64): "measured",
        ("softmax", 16): "memory", ("softmax", 32): "memory", ("softmax", 64): "memory",
        # an error at one length says nothing about another
        ("primal", 16): "error", ("primal", 32): "time", ("primal", 64): "time",
        ("primal:free", 16): "time", ("primal:free", 32): "time", ("primal:free", 64): "time",
    }  # fmt: skip
    assert results.cells["primal", 32].reason == "one step takes more than 100 s, the budget"
    free = results.cells["primal:free", 16]
    assert free.reason == "5 steps of 60 s exceed the budget of 100 s"
    assert free.peak_mb == 7.0
    assert timed == [(16, ["floor"]), (32, ["floor"]), (64, ["floor"])]


def test_an_output_that_is_not_finite_is_an_error(meter, tmp_path, monkeypatch):
    real = run_module.make_step

    def make_step(settings, candidate, inputs):
        step = real(settings, candidate, inputs)
        return (lambda: step() / 0) if candidate.text == "primal" else step

    monkeypatch.setattr(run_module, "make_step", make_step)
    results = read_results(run_bench(plan(lengths=(16,)), tmp_path))
    assert results.cells["primal", 16].reason == "ValueError: the output is not finite"
    assert results.cells["softmax", 16].status == "measured"


def test_a_killed_run_goes_on(meter, fake_time, tmp_path, monkeypatch):
    timed, _ = fake_time
    kill = {("primal", 32): KeyboardInterrupt()}
    real = Meter.peak

    def peak(self, maker, fields, candidate, length, *, seconds, device):
        if (candidate, length) in kill:
            raise kill.pop((candidate, length))
        return real(self, maker, fields, candidate, length, seconds=seconds, device=device)

    monkeypatch.setattr(Meter, "peak", peak)
    with pytest.raises(KeyboardInterrupt):
        run_bench(plan(), tmp_path)
    partial = read_results(tmp_path)
    assert set(partial.cells) == {("floor", 16), ("softmax", 16), ("primal", 16)}
    run_bench(plan(), tmp_path)
    assert meter.asked == [("floor", 32), ("softmax", 32), ("primal", 32)]
    assert timed == [(16, ["floor", "softmax", "primal"]), (32, ["floor", "softmax", "primal"])]
    complete = read_results(tmp_path)
    assert len(complete.cells) == 6
    assert complete.cells["primal", 16] == partial.cells["primal", 16]
    run_bench(plan(), tmp_path)
    assert meter.asked == []
    assert read_results(tmp_path) == complete


def test_candidates_and_lengths_can_be_added(meter, fake_time, tmp_path):
    timed, seconds = fake_time
    run_bench(plan("floor,softmax", (16,)), tmp_path)
    before = read_results(tmp_path)
    seconds["primal"] = lambda n: 3e-6 * n
    timed.clear()
    run_bench(plan("floor,softmax,primal", (16, 32)), tmp_path)
    # the references run again beside the new one, for its ratios; their own figures stay
    assert timed[0] == (16, ["floor", "softmax", "primal"])
    after = read_results(tmp_path)
    assert after.cells["floor", 16] == before.cells["floor", 16]
    assert after.cells["primal", 16].over_floor == pytest.approx(3.0)
    assert set(status(after).values()) == {"measured"}
    # a smaller plan keeps what it does not ask for
    run_bench(plan("floor,softmax", (16,)), tmp_path)
    assert len(read_results(tmp_path).cells) == 6
    assert "primal" not in (tmp_path / "results.csv").read_text()


def test_what_was_not_measured_is_tried_again(meter, fake_time, tmp_path):
    meter.answers["primal", 16] = NotMeasured("error", "ValueError: not yet")
    run_bench(plan(lengths=(16,)), tmp_path)
    assert read_results(tmp_path).cells["primal", 16].status == "error"
    meter.answers.clear()
    run_bench(plan(lengths=(16,)), tmp_path)
    assert meter.asked == [("primal", 16)]
    assert read_results(tmp_path).cells["primal", 16].status == "measured"


def test_other_settings_are_refused(meter, fake_time, tmp_path):
    run_bench(plan(lengths=(16,)), tmp_path)
    kept = (tmp_path / "results.json").read_text()
    with pytest.raises(RunError, match="has results with width = 16, but here it is 32"):
        run_bench(plan(lengths=(16,), width=32), tmp_path)
    assert (tmp_path / "results.json").read_text() == kept
    found = json.loads(kept)
    found["environment"]["torch"] = "1.0"
    (tmp_path / "results.json").write_text(json.dumps(found))
    with pytest.raises(RunError, match=r"has results with torch = 1\.0"):
        run_bench(plan(lengths=(16,)), tmp_path)


def test_a_new_folder_each_time(meter, fake_time, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, second = run_bench(plan(lengths=(16,))), run_bench(plan(lengths=(16,)))
    assert [str(first), str(second)] == ["bench/block-training-001", "bench/block-training-002"]


def test_threads_are_given_back(meter, fake_time, tmp_path):
    assert torch.get_num_threads() == 1
    run_bench(plan(lengths=(16,), threads=2), tmp_path)
    assert torch.get_num_threads() == 1
