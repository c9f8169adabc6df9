"""ListOps by rule: labels, text, distribution, resuming."""

import json
import random

import numpy as np
import pytest

from primal_attention.tasks import DataError
from primal_attention.tasks.lra import listops_generate
from primal_attention.tasks.lra.listops import depth, parse, value
from primal_attention.tasks.lra.listops_generate import generate
from primal_attention.tasks.lra.listops_trees import ListOpsSettings, draw

SMALL = ListOpsSettings(
    train=40, validation=7, test=5, max_depth=5, max_args=4, min_length=20, max_length=90
)
OPERATIONS = {
    "[MIN": min,
    "[MAX": max,
    "[MED": lambda args: int(np.median(args)),
    "[SM": lambda args: sum(args) % 10,
}


def applied(words):
    """The value of the benchmark's text, word by word: `( f x )` applies f to one more argument."""
    word = next(words)
    if word != "(":
        return int(word) if word.isdigit() else (word, []) if word != "]" else "]"
    function, argument = applied(words), applied(words)
    assert next(words) == ")"
    name, arguments = function
    if argument == "]":
        return OPERATIONS[name](arguments)
    return name, [*arguments, argument]


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(listops_generate, "CHUNK", 10)


def test_text_value_and_tokens_agree():
    settings = ListOpsSettings()
    for text, label, tokens in draw(settings, 3, 60):
        words = iter(text.split())
        assert applied(words) == label
        assert next(words, None) is None
        found = parse(text.encode())
        assert found.tobytes() == tokens
        assert value(found) == label
        assert 500 < len(found) < 2000
        assert depth(found) <= 10


def test_chunk_follows_from_seed_and_number():
    first = draw(SMALL, 2, 20)
    assert draw(SMALL, 2, 5) == first[:5]
    assert draw(SMALL, 3, 5) != first[:5]
    other = ListOpsSettings(**{**SMALL.__dict__, "seed": 1})
    assert draw(other, 2, 5) != first[:5]


def one_by_one(rng, settings, level=1):
    """A tree's length, depth and operators as the benchmark draws them: node after node."""
    if level == settings.max_depth or rng.random() > 0.25:
        return 1, 1
    parts = [one_by_one(rng, settings, level + 1) for _ in range(rng.randint(2, settings.max_args))]
    return 2 + sum(n for n, _ in parts), 1 + max(d for _, d in parts)


def test_same_distribution_as_one_by_one():
    rng = random.Random(0)
    expected = []
    while len(expected) < 1500:
        length, levels = one_by_one(rng, SMALL)
        if SMALL.min_length < length < SMALL.max_length:
            expected.append((length, levels))
    found = [(len(t), depth(np.frombuffer(t, np.uint8))) for _, _, t in draw(SMALL, 0, 1500)]
    for a, b in zip(np.array(expected).T, np.array(found).T, strict=True):
        error = np.sqrt((a.var() + b.var()) / 1500)
        assert abs(a.mean() - b.mean()) < 4 * error
        assert abs(a.std() / b.std() - 1) < 0.1


def test_digits_and_operators_are_even():
    tokens = np.concatenate([np.frombuffer(t, np.uint8) for _, _, t in draw(SMALL, 0, 500)])
    counts = np.bincount(tokens, minlength=16)
    for even in (counts[1:5], counts[6:]):
        assert abs(even / even.mean() - 1).max() < 0.1


def test_files_and_statistics(tmp_path, task, small_chunks):
    folder = tmp_path / "data" / "lra" / "listops-1000"
    seen = []
    made = generate(folder, SMALL, progress=lambda *done: seen.append(done))
    assert seen == [(i, 6) for i in range(7)]
    assert made.cases == 52
    assert 20 < made.length["least"] <= made.length["mean"] <= made.length["greatest"] < 90
    assert made.depth["greatest"] <= 5
    assert sum(made.classes.values()) == pytest.approx(1, abs=1e-3)
    assert sum(made.operators.values()) == pytest.approx(1, abs=1e-3)
    names = ["basic_test.tsv", "basic_train.tsv", "basic_val.tsv", "statistics.json"]
    assert sorted(p.name for p in folder.iterdir()) == names
    assert json.loads((folder / "statistics.json").read_bytes())["settings"]["train"] == 40
    sets = task("listops").load(tmp_path / "data")
    assert [len(s) for s in sets.values()] == [40, 7, 5]
    lines = [line for name in names[:3] for line in (folder / name).read_text().splitlines()[1:]]
    assert len(set(lines)) == 52
    for s in sets.values():
        for start, length, label in zip(s.starts[:, 0], s.lengths[:, 0], s.labels, strict=True):
            assert value(s.tokens[start : start + length]) == label


def test_interrupted_or_parallel_gives_the_same(tmp_path, small_chunks, monkeypatch):
    generate(tmp_path / "whole", SMALL)

    def stop(done, total):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate(tmp_path / "cut", SMALL, progress=stop)
    drawn = []
    write_chunk = listops_generate._write_chunk
    monkeypatch.setattr(
        listops_generate, "_write_chunk", lambda *job: (drawn.append(job[-1]), write_chunk(*job))
    )
    generate(tmp_path / "cut", SMALL)
    assert drawn == [3, 4, 5]
    for path in (tmp_path / "whole").iterdir():
        assert (tmp_path / "cut" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.slow
def test_processes_give_the_same(tmp_path, small_chunks):
    for workers in (1, 2):
        generate(tmp_path / str(workers), SMALL, workers=workers)
    for path in (tmp_path / "1").iterdir():
        assert (tmp_path / "2" / path.name).read_bytes() == path.read_bytes()


def test_finished_files_are_kept(tmp_path, small_chunks, monkeypatch):
    made = generate(tmp_path, SMALL)
    monkeypatch.setattr(listops_generate, "draw", None)  # nothing is drawn again
    assert generate(tmp_path, SMALL) == made
    other = ListOpsSettings(**{**SMALL.__dict__, "seed": 1})
    with pytest.raises(DataError, match=r"basic_train.tsv is there and was not made with .*seed=1"):
        generate(tmp_path, other)


def test_files_of_the_benchmark_are_not_written_over(tmp_path, write):
    write(tmp_path / "basic_val.tsv", "Source\tTarget\n1\t1\n")
    with pytest.raises(DataError, match="remove it first"):
        generate(tmp_path, SMALL)


def test_a_wrong_label_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(listops_generate, "value", lambda tokens: 11)
    with pytest.raises(DataError, match=r"an expression has the label \d; expected 11"):
        generate(tmp_path, SMALL)


def test_too_few_expressions(tmp_path, small_chunks):
    tiny = {"max_depth": 2, "max_args": 2, "min_length": 1, "max_length": 5}
    with pytest.raises(
        DataError, match=r"drawn twice .*expected lengths at which all are different"
    ):
        generate(tmp_path, ListOpsSettings(train=500, validation=5, test=5, **tiny))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"train": 0}, "train is 0; expected an integer of at least 1"),
        ({"max_depth": 1}, "max_depth is 1; expected an integer of at least 2"),
        ({"min_length": 500, "max_length": 501}, "max_length is 501; expected more than"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_wrong_settings(wrong, message):
    with pytest.raises(ValueError, match=message):
        ListOpsSettings(**wrong)


def test_lengths_that_no_tree_has(tmp_path):
    low = ListOpsSettings(train=1, validation=1, test=1, max_depth=2, max_args=3)
    with pytest.raises(ValueError, match=r"no expression among .* expected lengths that trees of"):
        generate(tmp_path, low)


def test_no_workers(tmp_path):
    with pytest.raises(ValueError, match="workers is 0; expected an integer of at least 1"):
        generate(tmp_path, SMALL, workers=0)
