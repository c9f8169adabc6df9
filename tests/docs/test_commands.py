"""The commands of the pages about one's own files, run as they stand there, to a served model."""

import csv
import json
import re
import shutil
import subprocess
import sys
import time

import pytest

from . import pages

pytest.importorskip("uvicorn")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here"),
]


def primal(words, folder):
    command = [sys.executable, "-m", "primal_attention", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, (words, done.stderr)


def ask(curl, port):
    """What the command of the page gets; the server may still be loading."""
    for _ in range(600):
        line = curl.replace("127.0.0.1:8000", f"127.0.0.1:{port}")
        done = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=120)
        if done.returncode != 7:  # it cannot connect
            return json.loads(done.stdout)["predictions"]
        time.sleep(0.1)
    raise AssertionError("the server does not answer")


@pytest.mark.parametrize("page", ["own-data.md", "sets.md"])
def test_from_a_file_to_a_served_model(page, sensors, people, tmp_path, monkeypatch):
    train, predict, export, serve = pages.commands(page)[:4]
    assert [words[0] for words in (train, predict, export, serve)] == [
        "train", "predict", "export", "serve",
    ]  # fmt: skip
    own = sensors if page == "own-data.md" else people
    for name in (own.name, "later.csv", "new.csv"):
        shutil.copy(own, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    for words in (train, predict, export):
        primal(words, tmp_path)
    with open("predictions.csv", newline="") as file:
        expected = [[row["case"], row["prediction"]] for row in csv.DictReader(file)]
    words = [sys.executable, "-m", "primal_attention", *serve, "--port", "0"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    try:
        port = re.search(r":(\d+) \(", process.stderr.readline())[1]
        (curl,) = pages.code("own-data.md", "bash")
        found = ask(curl, port)
    finally:
        process.terminate()
        process.wait(30)
        process.stderr.close()
    assert [[one["case"], one["class"]] for one in found] == expected
    (shown,) = pages.code("own-data.md", "json")
    assert set(found[0]) == set(json.loads(shown)["predictions"][0])
