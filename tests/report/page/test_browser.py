"""The page in a real browser, Debian's chromium."""

import csv
import json

import pytest

from primal_attention.bench import Cell, Results, Settings
from primal_attention.report.page import write_page

from ...browser import Browser, needs_browser, until

pytestmark = [pytest.mark.slow, needs_browser]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    found = Browser(tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


@pytest.fixture
def path(tmp_path, write_run):
    """A page with every kind of chart, of names that need care."""
    runs = []
    for rank, eta in ((10, 0.1), (10, 0.2), (20, 0.1), (20, 0.2)):
        run = write_run(tmp_path / f"<b>{rank} & {eta}", rank=rank, eta=eta)
        result = json.loads((run / "result.json").read_text())
        result |= {"seconds": 10.0 * rank, "peak_memory_mb": 100.0 + rank}
        (run / "result.json").write_text(json.dumps(result))
        runs.append(run)
    layer = {
        "name": "layers.0", "kind": "primal (data)", "method": "factored", "heads": 2, "inputs": 1,
        "effective_rank_by_head": [1.5, 2.5], "singular_values_by_head": [[2, 1, 0.1]] * 2,
        "explained_variance": {"mean": [0.7, 0.9, 1.0], "deviation": [0.1, 0.05, 0.0]},
    }  # fmt: skip
    diagnostics = {
        "name": "layers.0", "kind": "primal (data)", "objective_by_head": [0.5, -0.1],
        "angles_e_by_head": [[1.0, 2.0]] * 2, "angles_r_by_head": [[1.0, 2.0]] * 2,
        "lambda_by_head": [[1.0, 2.0]] * 2, "inverse_sigma_by_head": [[1.0, 3.0]] * 2,
        "share_e_by_head": [0.4, 0.6],
    }  # fmt: skip
    document = {
        "spectrum": {"layers": [layer], "skipped": {}}, "diagnostics": {"layers": [diagnostics]}
    }  # fmt: skip
    (runs[0] / "spectrum.json").write_text(json.dumps(document))
    record = {"objective": [0.5, -0.1], "lambda": [0.1, 0.5, 0.9]}
    lines = [json.loads(line) for line in (runs[0] / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line["primal_layers"] = {"<b>layers.0": record, "layers.1": record}
    (runs[0] / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    bench = tmp_path / "bench"
    bench.mkdir()
    results = Results(Settings(), ("softmax", "primal:data"), (64, 128), 1.0, "primal bench", {})
    for name in results.candidates:
        for n in results.lengths:
            cell = Cell(name, n, "measured", None, 1e-4 * n, 1.0, 1.0, 0.1 * n, (1e-4 * n,))
            results.cells[name, n] = cell
    results.write(bench)
    return write_page([*runs, bench], tmp_path / "report.html")


def test_every_chart_is_drawn_and_nothing_complains(browser, path):
    for width, scheme in ((1200, "light"), (1200, "dark"), (390, "light"), (390, "dark")):
        browser.open(path, width=width, scheme=scheme)
        assert browser.problems() == []
        charts = browser.run(
            "[...document.querySelectorAll('figure.chart')].map(f => [f.id,"
            "f.querySelector('.view:not([hidden]) svg').getBoundingClientRect().height,"
            "f.querySelectorAll('.line, .cell, .bubble').length])"
        )
        assert len(charts) >= 16
        for name, height, marks in charts:
            assert height > 40, name
            assert marks > 0, name
        ids = [name for name, *_ in charts]
        assert len(set(ids)) == len(ids)
        # nothing is wider than the window
        assert browser.run("document.documentElement.scrollWidth") <= width
        paper = browser.run("getComputedStyle(document.body).backgroundColor")
        assert (paper == "rgb(255, 255, 255)") == (scheme == "light")


def test_downloads(browser, path, tmp_path):
    browser.open(path)
    folder = tmp_path / "downloads"
    folder.mkdir()
    browser("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
    browser.click("#curve-task-loss a.csv")
    file = folder / "curve-task-loss.csv"
    until(file.exists)
    rows = list(csv.reader(file.read_text().splitlines()))
    assert rows[0] == ["epoch", "<b>10 & 0.1", "<b>10 & 0.2", "<b>20 & 0.1", "<b>20 & 0.2"]
    assert len(rows) == 13
    assert float(rows[1][1]) == pytest.approx(2.0 * 2.718281828 ** (-0.25))
    assert browser.problems() == []


def test_the_pointer_reads_values(browser, path):
    browser.open(path)
    said = browser.hover("#curve-task-loss .view:not([hidden]) svg", 0.95, 0.5)
    assert said.startswith("epoch 12\n<b>10 & 0.1: 0.09957")
    assert "predicted" in browser.hover("[id^=confusion-0] rect.cell")
    assert "peak memory" in browser.hover("#costs circle.bubble")
    assert "s = 10" in browser.hover("#sweep rect.cell")
    assert browser.run("document.querySelectorAll('#tip *').length") == 0


def test_views_legends_and_theme(browser, path):
    browser.open(path)
    visible = "getComputedStyle(document.querySelector('{}')).display !== 'none'"
    log = visible.format("#curve-task-loss [data-view=log]")
    before = browser.run(log)
    browser.click(f"#curve-task-loss [data-show={'linear' if before else 'log'}]")
    assert browser.run(log) is not before
    line = visible.format('#curve-task-loss [data-key="1"]')
    browser.click("#curves [data-toggle='1']")
    assert not browser.run(line)
    assert "<b>10 & 0.2" not in browser.hover("#curve-task-loss .view:not([hidden]) svg", 0.5, 0.5)
    browser.click("#curves [data-toggle='1']")
    assert browser.run(line)
    browser.click("#theme")
    assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 28)"
    browser.run("localStorage.clear()")
    assert browser.problems() == []


def test_printed_in_light_without_buttons(browser, path):
    browser.open(path, scheme="dark", media="print")
    assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.run("getComputedStyle(document.querySelector('.csv')).display") == "none"
    assert browser("Page.printToPDF")["data"].startswith("JVBER")
