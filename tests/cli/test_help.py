"""Help answers at once: without torch, and without typer it says what to install."""

import json
import subprocess
import sys

NAMES = (
    "train",
    "resume",
    "predict",
    "export",
    "serve",
    "bench",
    "adapt",
    "convert",
    "cost",
    "spectrum",
    "report",
    "reproduce",
    "sweep",
    "data",
    "list",
)
COMMANDS = ([], *([name] for name in NAMES))

HELP = f"""
import contextlib, io, json, sys
from primal_attention.cli import run
found = {{}}
for words in {COMMANDS!r}:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        found[" ".join(words)] = run([*words, "--help"]), out.getvalue()
with contextlib.redirect_stdout(io.StringIO()) as out:
    found["version"] = run(["--version"]), out.getvalue()
heavy = {{"torch", "numpy", "lightning_fabric", "matplotlib", "sklearn"}} & set(sys.modules)
print(json.dumps({{"answers": found, "heavy": sorted(heavy)}}))
"""

BLOCKED = """
import sys
sys.modules["typer"] = None
from primal_attention.cli import main
main(["list"])
"""


def python(script):
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120
    )


def test_help_and_version_do_without_torch():
    import primal_attention

    done = python(HELP)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["heavy"] == []
    answers = found["answers"]
    assert {code for code, _ in answers.values()} == {0}
    assert answers["version"][1] == f"primal-attention {primal_attention.__version__}\n"
    for command in ("train", "resume", "data", "list"):
        assert command in answers[""][1]
        assert "--json" in answers[command][1]
    assert "from recipe" in answers["train"][1]
    assert "--validation-fraction" in answers["train"][1]


def test_missing_typer_is_one_sentence():
    done = python(BLOCKED)
    assert done.returncode == 1
    assert done.stderr == "primal: the command needs typer; install 'primal-attention[train]'\n"


def test_no_arguments_print_the_help(primal):
    done = primal()
    assert done.code == 2
    assert "train" in done.out + done.err
    assert "primal: " not in done.err


def test_module_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "primal_attention", "--version"], capture_output=True, text=True
    )
    assert done.returncode == 0
    assert done.stdout.startswith("primal-attention ")


def test_the_shell_completes_without_torch():
    """What a shell asks when a person presses the tabulator, with an import of torch forbidden."""
    script = """
import os, sys
sys.modules["torch"] = None
os.environ |= {"_PRIMAL_COMPLETE": "complete_bash", "COMP_WORDS": "primal tr", "COMP_CWORD": "1"}
from primal_attention.cli import main
main([])
"""
    done = python(script)
    assert done.stdout.split() == ["train"], done.stderr
