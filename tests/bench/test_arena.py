"""All tasks of the arena in one run: Table 3 as it is here."""

import csv
import dataclasses
import json
import time

import pytest

from primal_attention.attention import available_attentions
from primal_attention.bench import Cell, Results, Settings, Watch, parse_candidates, read_results
from primal_attention.bench.arena import ArenaPlan, arena_candidates, read_arena, run_arena
from primal_attention.bench.arena_table import arena_cells, arena_summary, reasons, rows
from primal_attention.bench.memory import MemoryMeter, Peak
from primal_attention.bench.settings import ARENA
from primal_attention.train import RunError

SMALL = {"width": 16, "threads": 1, "repeats": 2}


def test_the_sizes_are_those_of_the_tasks():
    plans = ArenaPlan(parse_candidates("primal")).plans()
    assert {n: (p.lengths, p.settings.batch_size, p.settings.rank) for n, p in plans.items()} == {
        "lra/listops": ((2048,), 4, 20), "lra/text": ((4096,), 4, 20),
        "lra/retrieval": ((4096,), 4, 30), "lra/image": ((1024,), 32, 30),
        "lra/pathfinder": ((1024,), 32, 30),
    }  # fmt: skip
    texts = [candidate.text for candidate in plans["lra/text"].candidates]
    assert texts == ["softmax:materialised", "softmax", "primal"]  # the references come along
    other = ArenaPlan(parse_candidates("softmax"), length=64, batch_size=2, rank=5, common=SMALL)
    for plan in other.plans().values():
        assert (plan.lengths, plan.settings.batch_size, plan.settings.rank) == ((64,), 2, 5)
    assert other.command == (
        "primal bench lra --attention softmax --lengths 64 --batch-size 2 --rank 5 --width 16 "
        "--threads 1 --repeats 2 --cell-budget 60"
    )


def test_every_model_is_there():
    texts = [candidate.text for candidate in arena_candidates()]
    assert texts[:4] == [
        "softmax:materialised", "softmax", "softmax:materialised+primal:data",
        "softmax+primal:data",
    ]  # fmt: skip
    assert {"nystrom:landmarks=64", "reformer:hashes=2", "primal:tied", "yoso"} <= set(texts)
    names = {text.partition(":")[0] for text in texts if "+" not in text}
    assert names == set(available_attentions()) - {"none"}
    assert len(set(texts)) == len(texts)


class Notes(Watch):
    def __init__(self):
        self.starts, self.parts, self.shares, self.cells = [], [], [], []

    def started(self, folder, title, cells, kept):
        self.starts.append((cells, kept))

    def part(self, title):
        self.parts.append(title)

    def working(self, share, text):
        self.shares.append(share)

    def found(self, cell):
        self.cells.append(cell)


@pytest.fixture
def no_processes(monkeypatch):
    """Memory is not measured: every step needs 5 MB."""
    monkeypatch.setattr(MemoryMeter, "peak", lambda *job, **options: Peak(5.0, 1e-6))


def test_a_run_goes_on_where_it_was(no_processes, tmp_path):
    tasks = ("lra/retrieval", "lra/image")
    plan = ArenaPlan(parse_candidates("softmax+primal"), tasks, 16, 2, 4, common=SMALL)
    notes = Notes()
    folder = run_arena(plan, tmp_path / "out", watch=notes)
    assert notes.starts == [(6, 0)]
    assert len(notes.parts) == 2
    assert notes.shares == sorted(notes.shares)
    assert 0 <= notes.shares[0] < notes.shares[-1] <= 1
    assert len(notes.cells) == 6
    found = read_arena(folder, tasks)
    cells = arena_cells(found)
    assert {cell["status"] for cell in cells} == {"measured"}
    for cell in cells:
        measured = found[cell["task"]].cells[cell["candidate"], 16]
        assert cell["seconds_per_1k"] == pytest.approx(1000 * measured.seconds)
        assert cell["faster_than_fused"] == pytest.approx(1 / measured.over_softmax)
        if cell["candidate"] == "softmax:materialised":
            assert cell["faster_than_materialised"] == 1.0
    listed = list(csv.DictReader((folder / "lra.csv").read_text().splitlines()))
    assert [row["candidate"] for row in listed] == [cell["candidate"] for cell in cells]
    stored = json.loads((folder / "lra.json").read_text())
    assert len(stored["cells"]) == 6
    assert stored["command"] == plan.command
    assert plan.command in (folder / "lra.md").read_text()
    again = Notes()
    run_arena(plan, folder, watch=again)
    assert again.starts == [(6, 6)]
    assert again.cells == []
    # another candidate is timed beside the references that were there
    more = ArenaPlan(parse_candidates("softmax+primal,linear"), tasks, 16, 2, 4, common=SMALL)
    run_arena(more, folder, watch=again)
    assert [cell.candidate for cell in again.cells] == ["linear", "linear"]
    assert all(cell.over_materialised and cell.over_softmax for cell in again.cells)
    image = read_results(folder / "image").cells
    assert len(image["linear", 16].beside) == 2
    assert image["linear", 16].beside != image["softmax:materialised", 16].rounds  # timed again
    assert image["softmax+primal", 16].beside == image["softmax:materialised", 16].rounds
    assert read_results(folder / "image").settings.what == "lra/image"


def test_a_deadline_leaves_the_long_tasks_out(no_processes, tmp_path):
    notes = Notes()
    tasks = ("lra/retrieval", "lra/image", "lra/text")
    plan = ArenaPlan(parse_candidates("softmax"), tasks, 16, 2, 4, common=SMALL)
    run_arena(plan, tmp_path, watch=notes, deadline=time.time())
    assert "lra/image" in notes.parts[0]  # the first of the small ones
    assert notes.parts[1].startswith("lra/text: left out, it would take about ")
    assert set(read_arena(tmp_path)) == {"lra/image"}
    again = Notes()  # what is known tells no pace: the next is measured, the last left out
    run_arena(plan, tmp_path, watch=again, deadline=time.time())
    assert again.parts[2].startswith("lra/retrieval: left out, it would take about ")
    assert set(read_arena(tmp_path)) == {"lra/image", "lra/text"}
    run_arena(plan, tmp_path, watch=notes)  # goes on with the others
    assert set(read_arena(tmp_path)) == set(tasks)


def test_no_results_are_one_sentence(tmp_path):
    with pytest.raises(RunError, match="has no results; expected those of `primal bench lra`"):
        read_arena(tmp_path)


@pytest.fixture
def found():
    """Two tasks; on the second, materialised softmax does not fit."""
    made = {}
    for task in ARENA[:2]:
        cells = {
            "softmax:materialised": Cell(
                "softmax:materialised", 9, "measured", None, 0.4, None, 4.0, 200.0, (), 1.0
            ),
            "softmax": Cell("softmax", 9, "measured", None, 0.1, None, 1.0, 20.0, (), 0.25),
            "primal": Cell("primal", 9, "measured", None, 0.05, None, 0.5, 10.0, (), 0.125),
        }
        if task == ARENA[1]:
            cells["softmax:materialised"] = Cell("softmax:materialised", 9, "memory", "no room")
            cells["primal"] = Cell("primal", 9, "measured", None, 0.05, None, 0.5, 10.0)
        made[task] = Results(
            Settings(what=task, batch_size=4), tuple(cells), (9,), 1.0, "", 
            {"processor": "a CPU", "cores": 2, "torch": "2", "primal-attention": "0"},
            {(name, 9): cell for name, cell in cells.items()},
        )  # fmt: skip
    return made


def test_ratios_to_both_kinds_of_softmax(found):
    cells = arena_cells(found)
    assert rows(cells, "seconds_per_1k") == [
        ["softmax:materialised", "400 (1.00×, 0.25×)", "too large"],
        ["softmax", "100 (4.00×, 1.00×)", "100 (4.00×, 1.00×)"],
        ["primal", "50.0 (8.00×, 2.00×)", "50.0 (–, 2.00×)"],
    ]
    assert rows(cells, "peak_mb")[2] == ["primal", "10.0 (20.0×, 2.00×)", "10.0 (–, 2.00×)"]
    assert reasons(cells) == ["softmax:materialised, lra/text: too large: no room"]
    text = arena_summary(found, "primal bench lra").markdown()
    assert "|  | listops: N = 9, batch 4 | text: N = 9, batch 4 |" in text
    assert "| primal | 50.0 (8.00×, 2.00×) | 50.0 (–, 2.00×) |" in text
    assert "- softmax:materialised, lra/text: too large: no room" in text
    assert "**Seconds per 1,000 training steps (" in text
    forward = {
        task: dataclasses.replace(one, settings=dataclasses.replace(one.settings, mode="forward"))
        for task, one in found.items()
    }
    assert (
        "**Seconds per 1,000 forward passes ("
        in arena_summary(forward, "primal bench lra").markdown()
    )
