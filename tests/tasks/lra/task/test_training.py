"""`primal train` on each task of the arena: small files in the formats of the benchmark."""

import json

import numpy as np
import pytest
import torch

pytest.importorskip("typer")
pytest.importorskip("lightning_fabric")

from primal_attention.cli import run

RNG = np.random.default_rng(0)
SMALL = (
    "--epochs", "1", "--epoch-steps", "2", "--warmup-steps", "1", "--batch-size", "3", "--width",
    "8", "--heads", "2", "--feedforward", "8", "--rank", "2", "--max-length", "40",
)  # fmt: skip
CASES = 12  # of a split


def text():
    return bytes(RNG.integers(32, 127, RNG.integers(3, 60)).astype(np.uint8))


def listops(data, write, png):
    for name in ("train", "val", "test"):
        lines = "".join(f"( ( [MAX {i % 10} ) ] )\t{i % 10}\n" for i in range(CASES))
        write(data / "lra/listops-1000" / f"basic_{name}.tsv", "Source\tTarget\n" + lines)


def reviews(data, write, png):
    for split in ("train", "test"):
        for i in range(CASES):
            write(data / "imdb/aclImdb" / split / ("neg", "pos")[i % 2] / f"{i}_1.txt", text())


def pairs(data, write, png):
    for name in ("train", "eval", "test"):
        lines = [b"%d.0\tA%d\tB\t%b\t%b\n" % (i % 2, i, text(), text()) for i in range(CASES)]
        write(data / "lra/tsv_data" / f"new_aan_pairs.{name}.tsv", b"".join(lines))


def cifar10(data, write, png):
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        records = RNG.integers(0, 256, (CASES, 3073)).astype(np.uint8)
        records[:, 0] %= 10
        write(data / "cifar10" / f"{name}.bin", records.tobytes())


def pictures(data, write, png):
    folder = data / "lra/pathfinder32/curv_contour_length_14"
    lines = [f"imgs/0 sample_{i}.png {i} {i % 2} 1.0 14 4 2 0.5 1 1\n" for i in range(3 * CASES)]
    write(folder / "metadata/0.npy", "".join(lines))
    for i in range(3 * CASES):
        write(folder / f"imgs/0/sample_{i}.png", png(RNG.integers(0, 256, (32, 32))))


TASKS = {
    "listops": listops, "text": reviews, "retrieval": pairs, "image": cifar10,
    "pathfinder": pictures,
}  # fmt: skip


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    monkeypatch.setattr("primal_attention.cli.runs._draw", lambda run: None)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", TASKS)
def test_train(name, data, write, png, tmp_path, capsys):
    TASKS[name](data, write, png)
    words = ["train", f"lra/{name}", "--data-dir", str(data), "--out", str(tmp_path / "runs")]
    assert run([*words, *SMALL, "--json"]) == 0
    told = capsys.readouterr()
    assert 0 <= json.loads(told.out)["accuracy"] <= 1
    assert f"reading lra/{name} train, once: 0 cases\n" in told.err
    assert f"reading lra/{name} test, once: " in told.err
    if name == "listops":  # the stores are there now
        assert run([*words, *SMALL]) == 0
        assert "reading" not in capsys.readouterr().err


def test_quiet(data, write, png, tmp_path, capsys):
    listops(data, write, png)
    words = ["train", "lra/listops", "--data-dir", str(data), "--out", str(tmp_path / "runs")]
    assert run([*words, *SMALL, "--quiet", "--json"]) == 0
    assert capsys.readouterr().err == ""


def test_a_bad_file(data, write, png, tmp_path, capsys):
    pairs(data, write, png)
    path = write(data / "lra/tsv_data/new_aan_pairs.eval.tsv", b"1.0\tA\tB\tx\ty\nx\tA\tB\tx\ty\n")
    words = ["train", "lra/retrieval", "--data-dir", str(data), "--out", str(tmp_path / "runs")]
    assert run([*words, *SMALL]) == 1
    last = capsys.readouterr().err.replace("\n", " ")
    assert f"{path}, line 2: the label is 'x'; expected 0 or 1" in last
    assert not (tmp_path / "runs").exists()
