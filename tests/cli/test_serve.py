"""A csv file of one's own becomes a served model in four commands."""

import csv
import json
import subprocess
import sys
import urllib.request

import pytest

from ..browser import Browser, needs_browser, until

pytest.importorskip("uvicorn")

SMALL = ("--epochs", 2, "--width", 8, "--heads", 2, "--feedforward", 8, "--rank", 2)
COLUMNS = ("--target", "state", "--id", "machine", "--time", "at")


@pytest.fixture
def served(primal, sensors, tmp_path, monkeypatch):
    """Train, predict, export; then a server in a process of its own: its address."""
    monkeypatch.setattr("primal_attention.cli.runs._draw", lambda run: None)
    done = primal("train", "--data", sensors, *COLUMNS, *SMALL, "--name", "mine")
    assert done.code == 0, done.err
    assert "2 classes" in done.err
    assert "own/classes" in done.err
    done = primal("predict", "runs/mine", sensors, "--out", "predictions.csv", "-q")
    assert (done.code, done.out, done.err) == (0, "", "")
    done = primal("export", "runs/mine", "--format", "safetensors", "--json")
    assert json.loads(done.out)["difference"] == 0
    words = [sys.executable, "-m", "primal_attention", "serve", "runs/mine", "--port", "0"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    said = process.stderr.readline()
    yield said.split(" at ")[1].split()[0]
    process.terminate()
    assert process.wait(30) in (0, -15)
    process.stderr.close()


def test_from_a_csv_file_to_a_served_model(served, sensors):
    request = urllib.request.Request(
        f"{served}/predict", sensors.read_bytes(), {"Content-Type": "text/csv"}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        found = json.load(answer)["predictions"]
    with open("predictions.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [one["class"] for one in found] == [row["prediction"] for row in rows]
    for one, row in zip(found, rows, strict=True):
        assert one["probabilities"]["ok"] == pytest.approx(float(row["p(ok)"]), abs=1e-6)


def press(browser):
    """What the page shows once its button was pressed, row by row."""
    browser.run("document.getElementById('found').replaceChildren()")
    browser.click("button")
    until(lambda: browser.run("document.getElementById('found').childElementCount") == 1)
    return browser.run(
        "(found => found.rows ? [...found.rows].map(row => [...row.cells].map(c => c.innerText))"
        " : [[found.innerText]])(document.getElementById('found').firstElementChild)"
    )


@pytest.mark.slow
@needs_browser
def test_the_page_in_a_real_browser(served, sensors, tmp_path):
    """The example on the page, one's own csv file and a mistake, each sent by the button."""
    with urllib.request.urlopen(served, timeout=120):  # it has been loaded
        browser = Browser(tmp_path / "profile")
    try:
        browser.open(served, width=390, scheme="dark")
        assert browser.problems(own=served) == []
        head, row = press(browser)
        assert head == ["case", "class", "how sure"]
        assert (row[0], row[1] in ("ok", "worn"), row[2][-2:]) == ("a", True, " %")
        browser.run(f"document.getElementById('body').value = {json.dumps(sensors.read_text())}")
        rows = press(browser)
        with open("predictions.csv", newline="") as file:
            expected = [[row["case"], row["prediction"]] for row in csv.DictReader(file)]
        assert [row[:2] for row in rows[1:]] == expected
        assert browser.problems(own=served) == []
        browser.run("document.getElementById('body').value = 'machine,at\\n'")
        ((said,),) = press(browser)
        assert said.startswith("the body has no column 'vibration'")
        assert browser.run("document.documentElement.scrollWidth") <= 390
    finally:
        browser.close()


def test_wrong_words(primal, tmp_path, sensors):
    done = primal("train")
    assert done.code == 2
    assert "no TASK and no --data; expected one of them" in done.err
    done = primal("train", "--data", sensors, "--target", "stat")
    assert done.code == 2
    assert "no column 'stat' for --target (did you mean 'state'?)" in done.err
    done = primal("train", "uea/BasicMotions", "--data", sensors)
    assert done.code == 2
    assert "--data is not for uea/BasicMotions" in done.err
    done = primal("export", tmp_path, "--format", "onx")
    assert done.code == 2
    assert "did you mean 'onnx'" in done.err
    done = primal("predict", tmp_path, sensors)
    assert done.code == 1
    assert "has no config.json" in done.err
