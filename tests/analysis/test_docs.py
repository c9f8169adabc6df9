"""The examples of docs/analysis.md run as written."""

import re
from pathlib import Path

import pytest
import torch

PAGE = Path(__file__).parents[2] / "docs" / "analysis.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)


def test_there_are_examples():
    assert len(EXAMPLES) >= 5


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_example_runs(number):
    if "KernelSVD" in EXAMPLES[number]:
        pytest.importorskip("sklearn")
    torch.manual_seed(0)
    exec(compile(EXAMPLES[number], f"analysis.md, example {number + 1}", "exec"), {})
