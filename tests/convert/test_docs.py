"""The examples of docs/convert.md run as written."""

import re
from pathlib import Path

import pytest
import torch

from primal_attention.convert.adapters import base

PAGE = Path(__file__).parents[2] / "docs" / "convert.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)


def test_there_are_examples():
    assert len(EXAMPLES) == 4


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_example_runs(number, monkeypatch):
    monkeypatch.setattr(base, "_adapters", dict(base._adapters))
    torch.manual_seed(0)
    exec(compile(EXAMPLES[number], f"example {number + 1}", "exec"), {})
