"""The README's examples run as written."""

import re
from pathlib import Path

import pytest
import torch

README = Path(__file__).parents[1] / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 3


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_example_runs(number: int) -> None:
    torch.manual_seed(0)
    exec(compile(EXAMPLES[number], f"README example {number + 1}", "exec"), {})


def test_streamed_token_equals_the_full_pass() -> None:
    names: dict[str, object] = {}
    exec(next(e for e in EXAMPLES if "attn.step" in e), names)
    attn, x, last = names["attn"], names["x"], names["last"]
    torch.testing.assert_close(last, attn(x)[0][:, 999])
