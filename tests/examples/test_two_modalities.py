"""The example of two modalities: cases are what they say, masks hide what they should."""

import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn")

EXAMPLE = Path(__file__).parents[2] / "examples" / "two_modalities.py"


@pytest.fixture(scope="module")
def example():
    return SimpleNamespace(**runpy.run_path(str(EXAMPLE), run_name="example"))


def test_patches_and_captions(example):
    images = np.arange(2 * 64).reshape(2, 8, 8)
    patches = 16 * example.patches_of(images)
    assert patches[0, 0].tolist() == [0, 1, 8, 9]
    assert patches[1, 5].tolist() == [64 + 18, 64 + 19, 64 + 26, 64 + 27]
    digits = np.arange(300) % 10
    cases = example.draw(np.zeros((300, 8, 8)), digits, "matching", np.random.default_rng(0))
    named = cases.words[:, 3].numpy() - 4
    assert ((named == digits) == cases.answers.numpy().astype(bool)).all()
    assert 100 < int(cases.answers.sum()) < 200
    alone = example.draw(np.zeros((300, 8, 8)), digits, "image", np.random.default_rng(0))
    assert (alone.answers.numpy() == (digits > 4)).all()


@pytest.mark.parametrize("attention", ["softmax", "primal"])
def test_what_is_masked_is_a_patch_and_what_it_attends_to(example, attention):
    torch.manual_seed(0)
    model = example.TwoModalities(attention).eval()
    patches, words = torch.rand(6, 16, 4), torch.randint(14, (6, 5))
    masked = model.twins(patches, words)
    assert masked.sum(1).tolist() == [example.MASKED] * 6
    hidden = patches.masked_fill(masked.unsqueeze(-1), 7.0)
    same = [model(one, words, masked)[1] for one in (patches, hidden)]
    torch.testing.assert_close(*same)  # what is hidden is not seen
    assert not torch.allclose(model(patches, words)[1], model(hidden, words)[1])


@pytest.mark.slow
def test_it_learns_and_says_what_flows(example, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["two_modalities.py", "--epochs", "1"])
    example.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0] for line in (lines[0], lines[4])] == ["matching", "image"]
    first, last = (line.split() for line in lines[6:8])
    assert float(last[1]) > float(first[1])  # the accuracy of the easy question
    assert float(last[2]) < float(first[2])  # and restored patches
    assert all(float(lift) > 0 for lift in last[3:])
