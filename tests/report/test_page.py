"""The page: complete, self-contained, escaped; what is missing is said and not fatal."""

import csv
import json
import re
from html.parser import HTMLParser
from urllib.parse import unquote

import numpy as np
import pytest

from primal_attention.bench import Cell, Results, Settings
from primal_attention.report.page import write_page
from primal_attention.train import RunError

EVIL = "<img src=x onerror=alert(1)>&\"'"


class Reader(HTMLParser):
    """Tags, their attributes, and the tables behind the download links by figure."""

    VOID = ("meta", "link", "img", "br", "path", "rect", "circle")

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.texts = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("script", "style"):
            self.texts.append(data)

    @property
    def text(self):
        return "".join(self.texts).replace("\N{NO-BREAK SPACE}", " ")

    @property
    def figures(self):
        return [a["id"] for tag, a in self.tags if tag == "figure"]

    def table(self, name):
        for _, a in self.tags:
            if a.get("download") == f"{name}.csv":
                data = unquote(a["href"].removeprefix("data:text/csv;charset=utf-8,"))
                return list(csv.reader(data.splitlines()))
        raise KeyError(name)


def read(path):
    """A page, each section of which opens with a sentence."""
    text = path.read_text(encoding="utf-8")
    opened = re.findall(r'<section id="([^"]+)"><h2>[^<]*</h2>(<p class="lead">[^<]+)?', text)
    assert [section for section, lead in opened if not lead] == []
    return Reader(text)


def change(run, file, **values):
    found = json.loads((run / file).read_text())
    (run / file).write_text(json.dumps(found | values))


def add_steps(run, losses):
    """KSVD losses by step, before the epochs."""
    lines = [
        json.dumps({"kind": "step", "step": i, "ksvd_loss": loss})
        for i, loss in enumerate(losses, 1)
    ]
    rest = [line for line in (run / "metrics.jsonl").read_text().splitlines() if "epoch" in line]
    (run / "metrics.jsonl").write_text("\n".join([*lines, *rest]) + "\n")


@pytest.fixture
def seeds(tmp_path, write_run):
    """Three seeds, of which the last was interrupted."""
    folder = tmp_path / "seeds"
    for seed, accuracy in ((0, 0.9), (1, 0.8)):
        run = write_run(folder / f"seed-{seed}", seed=seed, protocol="paper", recipe="paper")
        change(run, "result.json", accuracy=accuracy, seconds=60.0, peak_memory_mb=500.0)
        add_steps(run, [4.0, 1.0, 0.25])
    (folder / "seed-2").mkdir()
    (folder / "seed-2" / "status.json").write_text('{"status": "interrupted", "reason": null}')
    (folder / "seeds.json").write_text(json.dumps({"config": {}, "seeds": [0, 1, 2]}))
    return folder


@pytest.fixture
def out(tmp_path):
    return tmp_path / "report.html"


def test_one_run(run, out):
    assert write_page([run], out) == out
    page = read(out)
    for word in ("86.7 %", "accuracy chosen on validation", "holdout", "uea/JapaneseVowels",
                 "primal × 2; data weights, s = 20, η = 0.1", "30 cases, 3 classes"):  # fmt: skip
        assert word in page.text
    assert {"curve-task-loss", "curve-ksvd-loss", "curve-accuracy", "confusion-0-run"} <= set(
        page.figures
    )
    assert page.table("curve-task-loss")[0] == ["epoch", "run"]
    assert len(page.table("curve-task-loss")) == 13
    assert ["2", "3", "2"] in page.table("confusion-0-run")
    assert page.table("settings")[1] == ["task", "uea/JapaneseVowels"]


def test_every_figure_has_data_a_picture_and_a_command(seeds, run, out):
    write_page([seeds, run], out, command="primal report x")
    text = out.read_text()
    figures = re.findall(r"<figure.*?</figure>", text, re.S)
    assert len(figures) >= 6
    for figure in figures:
        assert figure.count("<svg") >= 1
        assert len(re.findall(r'class="csv" download="[a-z0-9-]+\.csv"', figure)) == 1
        assert "primal report x" in figure
    ids = re.findall(r' id="([^"]*)"', text)
    assert len(ids) == len(set(ids))


def test_nothing_comes_from_elsewhere(seeds, out):
    write_page([seeds], out)
    text = out.read_text()
    for tag, attributes in read(out).tags:
        for name in ("src", "href"):
            assert attributes.get(name, "#").startswith(("#", "data:text/csv")), (tag, attributes)
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in text
    assert "@import" not in text
    assert "default-src 'none'" in text


def test_the_script_is_the_one_that_the_policy_allows(run, out):
    import base64
    import hashlib

    write_page([run], out)
    text = out.read_text()
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text


def test_names_from_outside_are_text(tmp_path, write_run, out):
    run = write_run(tmp_path / EVIL.replace("/", ""))
    change(run, "result.json", label=EVIL, classes=[EVIL, '"><b>', "\n,"])
    change(run, "config.json", data_dir=EVIL)
    (run / "environment.json").write_text(json.dumps({EVIL: EVIL}))
    write_page([run], out, title=EVIL, command=EVIL, train_command=lambda config, seeds: EVIL)
    page = read(out)
    assert not {"img", "b"} & {tag for tag, _ in page.tags}
    assert not [a for _, a in page.tags if any(name.startswith("on") for name in a)]
    assert page.text.count(EVIL) > 8


def test_seeds_have_a_mean_an_interval_and_what_is_missing(seeds, out):
    write_page([seeds], out)
    page = read(out)
    for word in ("85.0 %", "95 % interval of the mean: 21.5 to 100.0 %", "seed 2: interrupted",
                 "0: 90.0 %, 1: 80.0 %"):  # fmt: skip
        assert word in page.text
    assert page.table("curve-task-loss")[0] == ["epoch", "seeds, seed 0", "seeds, seed 1"]
    # both matrices together
    assert ["1", "1", "18"] in page.table("confusion-0-seeds")


def test_J_along_training_is_the_root_of_the_loss(seeds, out):
    write_page([seeds], out)
    rows = read(out).table("j-along-training")
    assert [[float(v) for v in row] for row in rows[1:]] == [[1, 2, 2], [2, 1, 1], [3, 0.5, 0.5]]


def add_layers(run, by_epoch):
    """What training writes of the primal layers, into the lines of the epochs."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        if line["kind"] == "epoch":
            line["primal_layers"] = by_epoch.get(line["epoch"], {})
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_J_and_lambda_by_epoch(seeds, run, out):
    record = {"objective": [3.0, -0.5], "lambda": [0.25, 0.5, 2.0]}
    unknown = {"objective": [None, 1.0], "lambda": [None, None, None]}
    add_layers(seeds / "seed-0", {1: {"a": record, "b": record}, 3: {"a": record, "b": unknown}})
    write_page([seeds, run], out)
    page = read(out)
    heads = page.table("j-by-head-0-seeds")
    assert heads[0] == ["epoch", "a, head 0", "a, head 1", "b, head 0", "b, head 1"]
    assert heads[1:] == [["1", "3.0", "-0.5", "3.0", "-0.5"], ["3", "3.0", "-0.5", "", "1.0"]]
    lambdas = page.table("lambda-by-epoch-0-seeds")
    assert lambdas[0] == ["epoch", "a", "a, low", "a, high", "b"]
    assert lambdas[1:] == [["1", "0.5", "0.25", "2.0", "0.5"], ["3", "0.5", "0.25", "2.0", ""]]
    # the run without them is on the page all the same
    assert "j-by-head-1-run" not in page.figures
    assert "confusion-1-run" in page.figures


def test_long_curves_are_thinned(seeds, out):
    add_steps(seeds / "seed-0", [1.0] * 1000 + [9.0])
    write_page([seeds], out)
    rows = read(out).table("j-along-training")[1:]
    assert len(rows) <= 260
    assert float(rows[-1][1]) == 3.0


def test_the_paper_against_ours(seeds, run, out):
    write_page([seeds, run], out)
    rows = read(out).table("paper-against-ours")
    assert rows[1][:5] == ["seeds", "uea/JapaneseVowels", "Primal.", "98.4", "85.0"]
    assert rows[1][-1] == "reproduced"  # two seeds tell nothing
    assert rows[2][-1] == "not judged: recipe default"


def test_a_set_that_is_not_in_the_paper_has_no_such_table(run, out):
    change(run, "config.json", task="uea/Unknown")
    write_page([run], out)
    assert "The paper against ours" not in read(out).text


def test_a_sweep_has_a_map(tmp_path, write_run, out):
    root = tmp_path / "sweep" / "runs"
    for number, (rank, eta) in enumerate([(10, 0.0), (10, 0.5), (20, 0.0)]):
        run = write_run(root / f"r{number}", rank=rank, eta=eta)
        change(run, "result.json", accuracy=0.5 + 0.1 * number)
    write_page([tmp_path / "sweep"], out)
    page = read(out)
    name = next(name for name in page.figures if name.startswith("sweep"))
    rows = page.table(name)
    assert rows[0] == ["η", "rank s", "accuracy, %"]
    found = {(eta, rank): value for eta, rank, value in rows[1:]}
    assert found.keys() == {("0", "10"), ("0", "20"), ("0.5", "10"), ("0.5", "20")}
    assert float(found["0", "20"]) == pytest.approx(70.0)
    assert found["0.5", "20"] == ""  # not run
    assert "s = 20, η = 0 (70.0 %)" in page.text


def test_runs_that_differ_in_more_are_no_sweep(tmp_path, write_run, out):
    runs = [write_run(tmp_path / f"r{i}", rank=10 * i, eta=0.1 * i, lr=1e-3 * i) for i in (1, 2)]
    write_page(runs, out)
    assert "Sweep" not in read(out).text


def test_bubbles_of_trainings_and_of_a_benchmark(tmp_path, write_run, out):
    runs = []
    for name, attention in (("soft", ("softmax",) * 2), ("prim", ("primal",) * 2)):
        runs.append(write_run(tmp_path / name, attention=attention))
        change(runs[-1], "result.json", seconds=120.0, peak_memory_mb=400.0)
    results = Results(Settings(), ("softmax", "primal:data"), (64, 128), 1.0, "primal bench a", {})
    for name in results.candidates:
        for n in results.lengths:
            seconds = 1e-4 * n
            cell = Cell(name, n, "measured", None, seconds, 1.0, 1.0, 0.1 * n, (seconds,))
            results.cells[name, n] = cell
    late = Cell("softmax", 128, "time", "it would take <too> long", peak_mb=12.8)
    results.cells["softmax", 128] = late  # its memory is known, its time is not
    (tmp_path / "bench").mkdir()
    results.write(tmp_path / "bench")
    write_page([*runs, tmp_path / "bench"], out)
    page = read(out)
    row = page.table("cost-0")[1]
    assert (row[0], [float(v) for v in row[1:3]]) == (
        "soft",
        pytest.approx([1.2, 86.6667], rel=1e-4),
    )
    measured = page.table("cost-0-bench")
    assert measured[0][1] == "sequences a second at N = 64"
    assert float(measured[1][1]) == pytest.approx(1 / 64e-4)
    assert page.table("seconds-bench")[1:] == [["64", "6.4", "6.4"], ["128", "", "12.8"]]
    assert "it would take <too> long" in page.text
    assert "primal bench a" in page.text
    assert "softmax × 2" in page.text


def test_a_benchmark_alone(tmp_path, out):
    results = Results(Settings(), ("floor",), (64,), 1.0, "primal bench", {})
    results.cells["floor", 64] = Cell("floor", 64, "measured", None, 1e-3, 1.0, None, 0.0, (1e-3,))
    results.write(tmp_path)
    write_page([tmp_path], out)
    assert read(out).figures == [f"seconds-{tmp_path.name.replace('_', '-')}"]


def test_several_tasks_have_panels_of_their_own(tmp_path, write_run, out):
    one, two = write_run(tmp_path / "a"), write_run(tmp_path / "b")
    change(two, "config.json", task="uea/BasicMotions")
    write_page([one, two], out)
    page = read(out)
    assert page.table("curve-task-loss-uea-japanesevowels")[0] == ["epoch", "a"]
    assert page.table("curve-task-loss-uea-basicmotions")[0] == ["epoch", "b"]
    assert "points above" not in page.text


def test_many_runs_are_a_list_with_the_best_in_detail(tmp_path, write_run, out):
    for i in range(10):
        run = write_run(tmp_path / "all" / f"r{i}", seed=i)
        change(run, "result.json", accuracy=0.5 + 0.01 * (i % 7))
    write_page([tmp_path / "all"], out)
    page = read(out)
    rows = page.table("verdict")
    assert len(rows) == 11
    assert rows[1][0] == "r6"
    assert [name for name in page.figures if name.startswith("confusion")] == ["confusion-6-r6"]
    assert "Of 10 configurations, the best of each task is shown." in page.text


def test_many_classes_are_a_list_of_confusions(run, out):
    counts = 10 * np.eye(80, dtype=int)
    counts[3, 5] = 5
    names = [f"class {i}" for i in range(80)]
    change(run, "result.json", classes=names, confusion=counts.tolist())
    write_page([run], out)
    page = read(out)
    assert page.table("confusion-0-run")[1:] == [
        ["class 3", "class 5", "5", "33.3\N{NO-BREAK SPACE}%"]
    ]
    assert "confusion-0-run" not in page.figures


def test_without_primal_layers(tmp_path, write_run, out):
    write_page([write_run(tmp_path / "s", attention=("softmax", "softmax"))], out)
    page = read(out)
    assert "No KSVD loss: no primal layer was trained" in page.text
    assert "curve-ksvd-loss" not in page.figures


def test_a_run_that_learned_to_act(tmp_path, out):
    folder = tmp_path / "agents"
    for seed, score in ((0, 70.0), (1, 80.0)):
        run = folder / f"seed-{seed}"
        run.mkdir(parents=True)
        settings = {"task": "rl/hopper-medium", "seed": seed, "attention": ["softmax", "primal"]}
        (run / "config.json").write_text(json.dumps(settings))
        result = {"score": score, "returns": [1.0, 2.0], "parameters": 5, "seconds": 3.0}
        (run / "result.json").write_text(json.dumps(result))
        lines = [
            {"kind": "epoch", "epoch": e, "task_loss": 1 / e, "ksvd_loss": 1.0, "score": 10.0 * e}
            for e in (1, 2, 3)
        ]
        (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "seeds.json").write_text(json.dumps({"seeds": [0, 1]}))
    write_page([folder], out, train_command=lambda config, seeds: "not known")
    page = read(out)
    for word in ("75.0", "0: 70.0, 1: 80.0", "mean of 2 episodes after the last epoch",
                 "Normalised score by epoch", "s = 32, η = 0.05"):  # fmt: skip
        assert word in page.text
    assert page.table("curve-normalised-score")[3] == ["3", "30.0", "30.0"]
    for word in ("Confusion", "holdout", "not known"):
        assert word not in page.text
    (folder / "seed-0" / "result.json").write_text('{"returns": []}')
    with pytest.raises(RunError, match="cannot be read as a finished run: no 'score'"):
        write_page([folder], out)


def test_comparison(seeds, tmp_path, write_run, out):
    other = write_run(tmp_path / "other", protocol="paper")
    write_page([seeds, other], out)
    text = read(out).text
    assert "other is 1.7 points above seeds" in text
    assert "one seed does not tell whether that is chance" in text


# -- spectra -------------------------------------------------------------------------------------


def test_a_spectrum_that_cannot_be_computed_is_a_remark(run, out):
    write_page([run], out)
    assert "No spectrum of run: " in read(out).text
    assert "has no best.safetensors" in read(out).text
    write_page([run], out, spectra=False)
    assert "Spectrum of the attention" not in read(out).text


@pytest.mark.parametrize("document", [[], {"spectrum": None}, {"spectrum": {}}], ids=str)
def test_another_document_in_its_place_is_a_remark(document, run, out):
    (run / "spectrum.json").write_text(json.dumps(document))
    write_page([run], out)
    assert "spectrum.json holds " in read(out).text


def test_a_spectrum_that_was_left_in_the_folder(run, out):
    layer = {
        "name": "encoder.layers.1.attention", "kind": "primal (data)", "inputs": 2,
        "effective_rank_by_head": [1.25, 2.5], "singular_values_by_head": [[4, 2, 0.0], [4, 0, 0]],
        "explained_variance": {"mean": [0.75, 1.0, 1.0], "deviation": [0.1, 0.0, 0.0]},
    }  # fmt: skip
    diagnostics = {
        "name": "encoder.layers.1.attention", "objective_by_head": [0.5, -2.0],
        "angles_e_by_head": [[10.0], [20.0]], "angles_r_by_head": [[30.0], [40.0]],
        "lambda_by_head": [[2.0], [8.0]], "inverse_sigma_by_head": [[1.0], [1.0]],
        "share_e_by_head": [0.25, 0.75],
    }  # fmt: skip
    skipped = {"layers.9": "it is <causal>"}
    document = {
        "spectrum": {"layers": [layer], "skipped": skipped},
        "diagnostics": {"layers": [diagnostics]},
    }
    (run / "spectrum.json").write_text(json.dumps(document))
    write_page([run], out)
    page = read(out)
    assert page.table("decay-0-run")[1:] == [["1", "1.0"], ["2", "0.25"]]
    assert page.table("explained-0-run")[1][1:] == ["0.75", "0.65", "0.85"]
    assert page.table("ranks-0-run")[1:] == [["1: primal", "0", "1.25"], ["1: primal", "1", "2.5"]]
    assert page.table("lambda-0-run")[1:] == [["1", "4.0"]]
    assert page.table("objective-0-run")[1:] == [["1", "0", "0.5"], ["1", "1", "-2.0"]]
    assert "layers.9 is not shown: it is <causal>." in page.text
    assert "primal spectrum" in page.text


# -- what is broken ------------------------------------------------------------------------------


def broken(run, kind):
    if kind == "no result":
        (run / "result.json").unlink()
    elif kind == "result is no JSON":
        (run / "result.json").write_text("{")
    elif kind == "result lacks a label":
        found = json.loads((run / "result.json").read_text())
        del found["label"]
        (run / "result.json").write_text(json.dumps(found))
    elif kind == "no metrics":
        (run / "metrics.jsonl").unlink()
    elif kind == "metrics are no JSON":
        (run / "metrics.jsonl").write_text("nonsense\n")
    elif kind == "metrics are a list":
        (run / "metrics.jsonl").write_text("[1]\n")
    elif kind == "unknown setting":
        change(run, "config.json", colour="red")
    elif kind == "ragged confusion":
        change(run, "result.json", confusion=[[1, 2], [3]])
    elif kind == "confusion of other classes":
        change(run, "result.json", confusion=[[1, 2], [3, 4]])


KINDS = (
    "no result", "result is no JSON", "result lacks a label", "no metrics", "metrics are no JSON",
    "metrics are a list", "unknown setting", "ragged confusion", "confusion of other classes",
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_broken_run_is_one_sentence(run, out, kind):
    broken(run, kind)
    with pytest.raises(RunError, match=re.escape(str(run))) as caught:
        write_page([run], out)
    assert "\n" not in str(caught.value)
    assert not out.exists()


def test_a_broken_run_among_others_is_left_out(tmp_path, write_run, out):
    write_run(tmp_path / "all" / "good")
    broken(write_run(tmp_path / "all" / "bad"), "no metrics")
    write_page([tmp_path / "all"], out)
    text = read(out).text
    assert "86.7 %" in text
    assert "Left out: " in text


def test_what_is_no_run_is_one_sentence(tmp_path, out):
    with pytest.raises(RunError, match=r"has neither config\.json nor"):
        write_page([tmp_path], out)
    with pytest.raises(RunError, match="is not a folder"):
        write_page([tmp_path / "missing"], out)
    with pytest.raises(ValueError, match="was given no folder"):
        write_page([], out)
    (tmp_path / "seeds.json").write_text('{"seeds": [0]}')
    with pytest.raises(RunError, match="no finished seed"):
        write_page([tmp_path], out)
    (tmp_path / "seeds.json").write_text("[]")
    with pytest.raises(RunError, match="names no seeds"):
        write_page([tmp_path], out)


def test_the_file_appears_whole(run, tmp_path):
    folder = tmp_path / "new" / "place"
    write_page([run], folder / "a.html")
    assert [path.name for path in folder.iterdir()] == ["a.html"]
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="cannot write"):
        write_page([run], tmp_path / "file" / "a.html")


def test_equal_names_are_told_apart(tmp_path, write_run, out):
    runs = [write_run(tmp_path / place / "run") for place in ("a", "b")]
    write_page(runs, out)
    assert read(out).table("curve-task-loss")[0] == ["epoch", "a/run", "b/run"]
    write_page([runs[0], runs[0]], out)  # given twice, shown once
    assert read(out).table("curve-task-loss")[0] == ["epoch", "run"]
