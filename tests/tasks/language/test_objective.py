"""Runs that learn a language: perplexity by hand, resumed to the last bit, texts that go on."""

import json
import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from primal_attention.runs.errors import RunError
from primal_attention.train import Observer, resume, train
from primal_attention.train.config import LanguageConfig
from primal_attention.train.run import load
from primal_attention.train.streams import generate, language_model

WORDS = ["one", "two", "three", "four", "five", "six"]


@pytest.fixture
def text(tmp_path):
    """Every word is followed by the next one, nearly always."""
    rng = np.random.default_rng(0)
    lines = []
    for _ in range(80):
        start, flip = rng.integers(6), rng.random(7) < 0.05
        lines.append(" ".join(WORDS[(start + i + f) % 6] for i, f in enumerate(flip)))
    path = tmp_path / "counting.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


def config(text, **changes):
    small = {
        "width": 16, "heads": 2, "feedforward": 32, "rank": 4, "epochs": 3, "length": 16,
        "batch_size": 4, "warmup_steps": 0, "eta": 0.1, "lr": 0.01,
    }  # fmt: skip
    return LanguageConfig(task="lm/text", data=str(text), **small | changes)


class Interrupt(Observer):
    def step(self, event):
        if event.step == 13:
            raise KeyboardInterrupt


def test_interrupted_and_resumed_it_ends_the_same(text, tmp_path):
    whole = train(config(text), root=tmp_path, name="whole")
    with pytest.raises(KeyboardInterrupt):
        train(config(text), root=tmp_path, name="cut", observer=Interrupt())
    resume(tmp_path / "cut")
    for name in ("best.safetensors", "reader.json"):
        assert (tmp_path / "cut" / name).read_bytes() == (whole.run / name).read_bytes()
    apart = {"seconds", "peak_memory_mb"}
    first, second = (
        {k: v for k, v in json.loads((run / "result.json").read_text()).items() if k not in apart}
        for run in (whole.run, tmp_path / "cut")
    )
    assert first == second


@pytest.fixture
def trained(text, tmp_path):
    return train(config(text, epochs=4, start="cooccurrence"), root=tmp_path)


def test_the_perplexity_is_that_of_the_test_lines(text, trained):
    model, known = language_model(trained.run)
    tokens = torch.from_numpy(known.encode("\n".join(text.read_text().splitlines()[76:])))
    losses = []
    for first in range(0, len(tokens) - 1, 16):
        piece = tokens[first : first + 17]
        losses.append(F.cross_entropy(model(piece[None, :-1])[0], piece[1:], reduction="none"))
    found = math.exp(float(torch.cat(losses).detach().mean()))
    assert trained.perplexity == pytest.approx(found, rel=1e-4)
    assert trained.tokens == len(tokens) - 1
    assert trained.perplexity < 0.6 * trained.unigram


def test_it_goes_on_with_a_text(trained):
    written = "".join(generate(trained.run, "one two three", tokens=3, temperature=0))
    assert written == " four five six"
    again = ["".join(generate(trained.run, "two", tokens=30, seed=s)) for s in (0, 0, 1)]
    assert again[0] == again[1] != again[2]
    assert set(again[0].split()) <= set(WORDS)
    with pytest.raises(ValueError, match="the text is empty"):
        next(generate(trained.run, ""))
    with pytest.raises(RunError, match="is not a run folder"):
        next(generate(trained.run / "checkpoints", "one"))


def test_a_start_at_the_cooccurrence_of_words(text):
    plain, started = (
        load(config(text, start=start)).model().embed.weight for start in ("random", "cooccurrence")
    )
    assert not torch.equal(plain, started)
    assert float(started.detach().std()) == pytest.approx(float(plain.detach().std()), rel=0.3)
