"""`primal generate`, from a text to a text in two commands."""

import pytest

TEXT = "one two three four\n" * 60


@pytest.fixture
def run(primal, tiny, tmp_path):  # `tiny`: without pictures
    (tmp_path / "count.txt").write_text(TEXT)
    done = primal(
        "train", "lm/text", "--data", "count.txt", "--width", 16, "--feedforward", 16, "--rank", 4,
        "--length", 16, "--epochs", 6, "--batch-size", 4, "--warmup-steps", 0, "--lr", 0.02,
        "--quiet", "--name", "lm",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "perplexity" in done.out
    return tmp_path / "runs" / "lm"


def test_a_text_goes_on(primal, run):
    done = primal("generate", run, "one two", "--tokens", 2, "--temperature", 0)
    assert done.code == 0, done.err
    assert done.out == "one two three four\n"
    refused = primal("generate", run, "", "--tokens", 2)
    assert refused.code == 2
    assert "the text is empty" in refused.err


def test_of_another_run_it_says_so(primal, trained):
    done = primal("generate", trained, "one")
    assert done.code != 0
    assert "expected one like lm/text" in done.err
