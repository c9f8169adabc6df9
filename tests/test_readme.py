"""The README's examples run as written."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch

README = Path(__file__).parents[1] / "README.md"
COMMANDS = re.findall(r"^    primal (.*?)(?:\s+#.*)?$", README.read_text(), flags=re.MULTILINE)
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


def test_there_are_commands() -> None:
    expected = {
        "train", "resume", "data", "list", "bench", "spectrum", "report", "predict", "generate",
        "calibrate", "explain",
    }  # fmt: skip
    assert {command.split()[0] for command in COMMANDS} == expected


def write_own_files(folder: Path) -> None:
    """What a reader has: events of the past, the beginning of a new sequence, a text."""
    rows = [
        f"{sequence},{round(1.5 * i + 0.1 * sequence, 1)},{'abc'[(sequence + i) % 3]}"
        for sequence in range(12)
        for i in range(15)
    ]
    (folder / "log.csv").write_text("\n".join(["sequence,time,type", *rows]))
    (folder / "new.csv").write_text("\n".join(["sequence,time,type", *rows[:7]]))
    (folder / "book.txt").write_text(
        "Once upon a time there was a kernel and its two spaces.\n" * 60
    )


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_commands_run(tmp_path: Path) -> None:
    write_own_files(tmp_path)
    for command in COMMANDS:
        run = next(iter(sorted(tmp_path.glob("runs/*"))), None)
        words = shlex.split(command.replace("RUN", str(run)))
        done = subprocess.run(
            [sys.executable, "-m", "primal_attention", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=1200,
        )
        assert done.returncode == 0, (command, done.stderr)
        assert done.stdout.strip()
