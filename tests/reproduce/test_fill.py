"""Tables, filled: done once, continued, with failures in their cells."""

import csv
import dataclasses
import time

import pytest
import torch

from primal_attention.reproduce import fill, parse_name, table
from primal_attention.reproduce.lines import QUICK_REASON, Line, trained_lines
from primal_attention.reproduce.verdict import Estimate
from primal_attention.reproduce.write import as_csv, as_latex, as_markdown, notes, write_all
from primal_attention.tasks.rl.files import MINARI_FILE
from primal_attention.train.sweep import Outcome, Store, is_open, work
from primal_attention.train.sweep.store import data_of, key_of


@pytest.fixture(autouse=True)
def embedded(monkeypatch):
    monkeypatch.delenv("PRIMAL_ATTENTION_DATA", raising=False)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Engine:
    """Does no run: every run gets the accuracy that `worth` says, or its error."""

    def __init__(self, worth):
        self.worth, self.runs = worth, []

    def __call__(self, configs, store, terms):
        known = store.outcomes()
        for config in configs:
            if key_of(config) in known:
                continue
            self.runs.append(config)
            worth = self.worth(config)
            common = {"fingerprint": key_of(config), "settings": {}, "seconds": 60.0}
            if isinstance(worth, str):
                store.add(Outcome(**common, status="failed", reason=worth))
            else:
                store.add(Outcome(**common, status="finished", accuracy=worth, cases=370))


def test_a_table_of_pretended_runs(tmp_path):
    worth = {"softmax": 0.986, "primal": 0.999, "linear": 0.9, "flow": "the loss is NaN"}
    engine = Engine(lambda config: worth.get(config.attention[0], 0.98))
    lines = fill("table1/JapaneseVowels", tmp_path, seeds=[0, 1], engine=engine)
    verdicts = {line.column: line.verdict for line in lines}
    assert len(lines) == 11
    assert verdicts["Trans."] == verdicts["Primal.+Trans."] == "reproduced"
    assert verdicts["Primal."] == "better"
    assert verdicts["Linear."] == "not reproduced"
    flow = next(line for line in lines if line.column == "Flow.")
    assert (flow.verdict, flow.why) == ("not run", "failed: the loss is NaN")
    assert len(engine.runs) == 22
    assert fill("table1/JapaneseVowels", tmp_path, seeds=[0, 1], engine=engine) == lines
    assert len(engine.runs) == 22  # nothing is done twice
    fill("table8/JapaneseVowels", tmp_path, seeds=[0, 1], engine=engine)
    assert [run.weights for run in engine.runs[22:]] == ["free", "free"]  # the rest is known


def test_a_real_table_of_quick_runs(tmp_path):
    """Two runs, then a call that finds them done; a column that fails does not end the others."""
    done = []

    def engine(configs, store, terms):
        work([c for c in configs if c.attention[-1] == "primal"], store, terms, found=done.append)

    lines = fill("table1/JapaneseVowels", tmp_path, quick=True, engine=engine)
    assert len(done) == 2
    filled = {line.column: line for line in lines if line.ours is not None}
    assert set(filled) == {"Primal.", "Primal.+Trans."}
    assert {line.verdict for line in lines} == {"not run"}  # quick figures mean nothing
    assert filled["Primal."].why == QUICK_REASON
    assert next(line for line in lines if line.column == "Trans.").why == "no time yet"
    fill("table1/JapaneseVowels", tmp_path, quick=True, engine=engine)
    assert len(done) == 2


def test_a_budget_of_nothing_runs_nothing(tmp_path):
    lines = fill("table6/JapaneseVowels", tmp_path, budget=0.0)
    assert {line.why for line in lines} == {"no time yet"}
    assert len(lines) == 12


def test_terms_carry_the_deadline(tmp_path):
    seen = []
    before = time.time()
    fill("table6/JapaneseVowels", tmp_path, budget=50, engine=lambda c, s, t: seen.append(t))
    assert before + 50 <= seen[0].deadline <= time.time() + 50


def test_wrong_requests(tmp_path):
    assert parse_name("table1/Primal.") == ("table1", "Primal.")
    for name, options, message in (
        ("table10", {}, "unknown table 'table10'"),
        ("table1/Vowels", {}, "unknown part of table1"),
        ("table1", {"protocol": "papers"}, "protocol is 'papers'"),
        ("table1", {"seeds": []}, "seeds is"),
        ("table1", {"seeds": [1, 1]}, "seeds is"),
    ):
        with pytest.raises(ValueError, match=message):
            fill(name, tmp_path, **options)


# -- averages ------------------------------------------------------------------------------------


def table_8_lines(store, monkeypatch, leave=None):
    from primal_attention.reproduce.cells import cells_of
    from primal_attention.tasks import DataStatus, get_task

    kind = type(get_task("uea/Heartbeat"))
    monkeypatch.setattr(kind, "status", lambda self, _=None: DataStatus("", "", {}, (), ""))
    cells = cells_of("table8")
    outcomes = {
        key_of(cell.config): Outcome(
            key_of(cell.config), "finished", {}, accuracy=cell.figure.value / 100, cases=500
        )
        for cell in cells
        if (cell.row, cell.column) != leave
    }
    return trained_lines(table("table8"), cells, [0], outcomes)


def test_averages_are_judged_when_complete(tmp_path, monkeypatch):
    lines = table_8_lines(tmp_path, monkeypatch)
    averages = [line for line in lines if line.column == "average"]
    assert [(line.row, line.verdict) for line in averages] == [
        ("No", "reproduced"),
        ("Yes", "reproduced"),
    ]
    assert averages[0].ours.mean == pytest.approx(72.94)
    assert 0.8 < averages[0].ours.high - averages[0].ours.mean < 1.6
    lines = table_8_lines(tmp_path, monkeypatch, leave=("No", "PEMS-SF"))
    assert lines[-2].why == "9 of 10 cells have a result"
    assert lines[-1].verdict == "reproduced"


# -- texts ---------------------------------------------------------------------------------------

LINES = [
    Line("JapaneseVowels", "Primal.", "98.4", 98.4, Estimate(97.9, 96.5, 98.6, 3, 0.2),
         "reproduced", seconds=120, missing=("seed 3: failed: 5 % & more",)),
    Line("SpokenArabicDigits", "Primal.", "100", 100.0, None, "not run", "no data: a_b"),
]  # fmt: skip


def test_csv():
    rows = list(csv.DictReader(as_csv(LINES).splitlines()))
    assert rows[0]["ours"] == "97.9"
    assert rows[0]["difference"] == "-0.5"
    assert rows[1]["verdict"] == "not run"
    assert rows[1]["ours"] == ""


def test_markdown():
    text = as_markdown(table("table1"), LINES, "primal reproduce table1")
    assert "Made by `primal reproduce table1`: 1 reproduced, 1 not run." in text
    row = "| JapaneseVowels | Primal. | 98.4 | 97.9 ± 0.2 | -0.5 | 96.5 to 98.6 | 3 | reproduced |"
    assert row in text
    assert "- not run: SpokenArabicDigits (Primal.): no data: a_b" in text
    assert "without seed 3: failed: 5 % & more" in text
    assert "Outside the paper, average accuracy over the same ten sets, tuned" in text
    assert text.count("HIVE-COTE 2 80.1 (") == 1
    assert "Training took 2.0 minutes." in text


def test_a_figure_without_a_verdict_is_not_called_not_run():
    quick = dataclasses.replace(LINES[0], verdict="not run", why=QUICK_REASON)
    text = as_markdown(table("table1"), [quick, LINES[1]], "primal reproduce table1")
    assert "1 no verdict, 1 not run." in text
    assert "| 3 | no verdict |" in text
    assert quick.difference is None
    assert LINES[0].difference is not None
    assert f"- no verdict: JapaneseVowels (Primal.): {QUICK_REASON}" in text


def test_what_a_later_call_goes_on_with():
    assert not LINES[0].unfinished
    assert not LINES[1].unfinished
    assert dataclasses.replace(LINES[1], why="no time yet").unfinished
    assert dataclasses.replace(LINES[1], why="paused: out of time").unfinished
    assert dataclasses.replace(LINES[0], missing=("seed 1: no time yet",)).unfinished


def test_latex_is_escaped():
    text = as_latex(table("table3"), LINES)
    assert r"97.9 $\pm$ 0.2" in text
    assert r"95 \% interval" in text
    assert "±" not in text


def test_notes_are_those_of_the_lines():
    about_digits = "100 % is unverified"
    assert any(about_digits in note for note in notes(table("table1"), LINES))
    assert not any(about_digits in note for note in notes(table("table1"), LINES[:1]))
    assert any("selection on the test set" in note for note in notes(table("table1"), []))
    assert "validation split" in notes(table("table1"), LINES, "holdout")[0]


def test_files(tmp_path):
    written = write_all(table("table1"), LINES, tmp_path / "new", "command")
    assert [path.name for path in written] == ["table1.csv", "table1.md", "table1.tex"]
    assert all(path.read_text() for path in written)
    part = write_all(
        table("table6"), [], tmp_path, "command", part="JapaneseVowels s=20", quick=True
    )
    assert part[0].name == "table6-JapaneseVowels_s=20-quick.csv"
    (other, *_) = write_all(table("table1"), LINES, tmp_path, "command", protocol="holdout")
    assert other.name == "table1-holdout.csv"


# -- table 3 and figure 1 ------------------------------------------------------------------------


def test_efficiency_is_compared_by_factors():
    from primal_attention.bench import Cell, Results, Settings
    from primal_attention.bench.settings import ARENA
    from primal_attention.reproduce.efficiency import CANDIDATES, efficiency_lines

    results = {}
    for task in ARENA:
        cells = {}
        for text in CANDIDATES.values():
            slow = text == "softmax:materialised"
            rounds = (3.4, 3.5, 3.3) if slow else (1.0, 1.0, 1.0)
            cells[text, 64] = Cell(
                text, 64, "measured", seconds=rounds[0], rounds=rounds,
                peak_mb=40.0 if slow else 10.0,
            )  # fmt: skip
        if task == "lra/listops":
            cells["reformer:hashes=2", 64] = Cell("reformer:hashes=2", 64, "time", "too slow")
        candidates = tuple(CANDIDATES.values())
        results[task] = Results(Settings(what=task), candidates, (64,), 1.0, "", {}, cells)
    added = Cell(  # later, beside a Transformer that was twice as fast then
        "primal:data", 64, "measured", seconds=0.5, rounds=(0.5,) * 3, beside=(1.7, 1.75, 1.65)
    )
    results["lra/pathfinder"].cells["primal:data", 64] = added
    lines = {(line.row, line.column): line for line in efficiency_lines(results)}
    assert lines["Primal.", "Time Pathfinder"].ours.mean == pytest.approx(3.4)
    primal = lines["Primal.", "Time ListOps"]  # 3.4 in the paper
    assert primal.ours.mean == pytest.approx(3.4)
    assert primal.verdict == "reproduced"
    assert lines["Primal.", "Memory Text"].verdict == "not reproduced"  # 15.5 in the paper
    assert lines["Per.", "Memory Image"].verdict == "better"  # 1.8 in the paper
    assert lines["Re.", "Time ListOps"].why == "reformer:hashes=2: time: too slow"
    assert lines["Trans.", "Time Text"].why == "the unit of the factors"
    assert lines["Primal.+Trans.", "Time Text"].verdict == "better"  # 1.9 in the paper
    assert {line.verdict for line in efficiency_lines(results, quick=True)} == {"not run"}
    del results["lra/text"]
    left = efficiency_lines(results, "Time Text")
    assert {line.why for line in left if line.row != "Trans."} == {"no time yet"}


def test_a_part_of_table_3_measures_no_more(tmp_path, monkeypatch):
    from primal_attention.bench import Watch
    from primal_attention.bench.memory import MemoryMeter, Peak

    monkeypatch.setattr(MemoryMeter, "peak", lambda *job, **options: Peak(5.0, 1e-6))

    class Notes(Watch):
        parts, cells = [], []

        def part(self, title):
            self.parts.append(title)

        def found(self, cell):
            self.cells.append(cell.candidate)

    lines = fill("table3/Time Image", tmp_path, quick=True, watch=Notes())
    assert len(lines) == 7
    assert sum(line.ours is not None for line in lines) == 6  # the Transformer is the unit
    assert len(Notes.parts) == 1
    assert "softmax:materialised+primal:data" in Notes.cells
    assert (tmp_path / "table3-quick" / "image" / "results.json").exists()


# -- tables 4 and 7 ------------------------------------------------------------------------------


def decision_lines(tmp_path, data, scores):
    """The lines of Medium Hopper after runs with these scores of seeds, learned from `data`."""
    (tmp_path / "d4rl").mkdir(exist_ok=True)
    (tmp_path / "d4rl" / "hopper_medium-v2.hdf5").touch()

    def engine(configs, store, terms):
        for config in configs:
            if config.attention[-1] == "primal":
                store.add(
                    Outcome(
                        key_of(config), "finished", config.to_dict(),
                        accuracy=scores[config.seed] / 100, data=str(data),
                    )
                )  # fmt: skip

    seeds = list(range(len(scores)))
    out = tmp_path / f"out{len(list(tmp_path.iterdir()))}"
    lines = fill("table4/Medium Hopper", out, seeds=seeds, data_dir=tmp_path, engine=engine)
    assert {line.why for line in lines if line.column != "Primal.+DT"} == {"no time yet"}
    return next(line for line in lines if line.column == "Primal.+DT")  # 74.5±0.6


def test_scores_are_judged_by_their_seeds(tmp_path):
    d4rl = tmp_path / "d4rl" / "hopper_medium-v2.hdf5"
    line = decision_lines(tmp_path, d4rl, [74.0, 76.0, 75.0])
    assert line.ours.mean == pytest.approx(75.0)
    assert line.ours.high == pytest.approx(75 + 4.303 / 3**0.5, abs=0.01)
    assert line.verdict == "reproduced"
    assert decision_lines(tmp_path, d4rl, [50.0, 50.1]).verdict == "not reproduced"
    near = decision_lines(tmp_path, d4rl, [73.2, 73.2])  # within the interval of their seeds
    assert near.verdict == "reproduced"
    alone = decision_lines(tmp_path, d4rl, [74.5])
    assert (alone.verdict, alone.ours.mean) == ("not run", pytest.approx(74.5))
    assert "one seed has no interval" in alone.why


@pytest.mark.parametrize(
    "data", ["minari/collected/hopper/medium-v0", "minari/mujoco/hopper/medium-v0",
             "d4rl/hopper_medium.hdf5"],
)  # fmt: skip
def test_other_episodes_are_not_those_of_the_paper(tmp_path, data):
    line = decision_lines(tmp_path, tmp_path / data, [74.0, 75.0])
    assert line.verdict == "not run"
    assert line.ours is not None
    assert "which is not D4RL's data: not comparable with the paper" in line.why


def test_a_cell_is_open_again_when_other_episodes_are_there(tmp_path):
    collected = tmp_path / "minari" / "collected" / "hopper" / "medium-v0"
    (collected / "data").mkdir(parents=True)
    (collected / MINARI_FILE).touch()
    asked = []

    def engine(configs, store, terms):
        asked.extend(c for c in configs if is_open(store.outcomes().get(key_of(c)), terms))
        for config in configs:
            store.add(
                Outcome(
                    key_of(config), "finished", config.to_dict(),
                    accuracy=0.5, data=data_of(config),
                )
            )  # fmt: skip

    def filled():
        return fill(
            "table4/Medium Hopper", tmp_path / "out", data_dir=tmp_path, seeds=[0, 1], engine=engine
        )

    assert {"collected" in line.why for line in filled()} == {True}
    first = len(asked)
    assert first > 0
    filled()
    assert len(asked) == first  # what is done is done
    (tmp_path / "d4rl").mkdir()
    (tmp_path / "d4rl" / "hopper_medium-v2.hdf5").touch()
    assert {line.verdict for line in filled()} <= {"better", "reproduced", "not reproduced"}
    assert len(asked) == 2 * first


@pytest.mark.slow
def test_table_4_from_quick_runs(tmp_path):
    """Episodes of random actions in the layout of D4RL, without a version: not D4RL's."""
    h5py = pytest.importorskip("h5py")
    pytest.importorskip("mujoco")
    (tmp_path / "d4rl").mkdir()
    draw = torch.Generator().manual_seed(0)
    with h5py.File(tmp_path / "d4rl" / "hopper_medium.hdf5", "w") as file:
        for name, width in (("observations", 11), ("actions", 3)):
            file[name] = torch.rand(60, width, generator=draw).numpy()
        file["rewards"] = torch.rand(60, generator=draw).numpy()
        file["terminals"] = torch.arange(60).remainder(20).eq(19).numpy()
    lines = fill("table4/Medium Hopper", tmp_path / "out", quick=True, data_dir=tmp_path)
    assert len(lines) == 7
    assert all(line.ours is not None for line in lines), [line.why for line in lines]
    assert {line.why for line in lines} == {QUICK_REASON}
    (outcome, *others) = Store(tmp_path / "out").outcomes().values()
    assert len(others) == 6
    assert outcome.data.endswith("hopper_medium.hdf5")


def test_figure_1_says_what_failed(tmp_path):
    def engine(configs, store, terms):
        for config in configs:
            store.add(Outcome(key_of(config), "failed", {}, reason="out of memory"))

    lines = fill("figure1/JapaneseVowels", tmp_path, engine=engine)
    assert {line.why for line in lines} == {"failed: out of memory"}
    assert not any(line.unfinished for line in lines)
    nothing = fill("figure1/JapaneseVowels", tmp_path / "new", engine=lambda *given: None)
    assert all(line.unfinished for line in nothing)


@pytest.mark.slow
def test_figure_1_from_quick_runs(tmp_path):
    lines = fill("figure1", tmp_path, quick=True, seeds=[0])
    here = [line for line in lines if line.row.startswith("JapaneseVowels")]
    assert len(here) == 2
    for line in here:
        assert line.ours is not None
        assert line.why == QUICK_REASON
    away = [line for line in lines if line not in here]
    assert all("ImageNet-1K" in line.why for line in away)
    assert len(Store(tmp_path).outcomes()) == 2
