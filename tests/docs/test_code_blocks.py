"""Every block of Python in the documentation runs as written, by itself, and every command line is
understood by the command."""

import re
import shlex

import pytest
import torch

from primal_attention import tasks
from primal_attention.adapters import base as adapters
from primal_attention.attention import registry

from . import pages

TUTORIALS = [page for page in pages.PAGES if page.startswith("tutorials/")]
BLOCKS = [
    (page, number)
    for page in pages.PAGES
    if page not in TUTORIALS
    for number in range(len(pages.code(page)))
]
NEEDS = {
    "KernelSVD": "sklearn",
    "PrimalFormerClassifier": "sklearn",
    "PrimalTableRegressor": "sklearn",
    "table/csv": "sklearn",
    "PrimalBagClassifier": "sklearn",
    "Reranker": "sklearn",
    "SparseKernelClassifier": "sklearn",
    "RunConfig": "lightning_fabric",
    "transformers": "transformers",
}

# what a block prints, where that is the point of it
OUTPUT = {("reproduce.md", 0): "98.4 reproduced\n", ("reproduce.md", 1): "12\n"}


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """An empty working directory, one thread, and registries that forget what a block adds."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    monkeypatch.setattr(adapters, "_adapters", dict(adapters._adapters))
    monkeypatch.setattr(tasks, "_tasks", dict(tasks._tasks))
    monkeypatch.delenv("PRIMAL_ATTENTION_DATA", raising=False)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


def test_there_are_blocks():
    assert len(BLOCKS) >= 20
    for page in pages.PAGES:  # no block in another spelling escapes
        known = sum(len(pages.code(page, kind)) for kind in ("python", "bash", "text", "json"))
        assert pages.read(page).count("```") == 2 * known, page
        hidden = re.findall(
            r"^ {4}.*\b(?:pa\.\w|import \w|class \w).*$", pages.bare(page), re.MULTILINE
        )
        assert [line for line in hidden if " -c " not in line] == [], page


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(("page", "number"), BLOCKS)
def test_block_runs(page, number, capsys):
    block = pages.code(page)[number]
    for word, module in NEEDS.items():
        if word in block:
            pytest.importorskip(module)
    exec(compile(block, f"{page}, block {number + 1}", "exec"), {"__name__": "block"})
    printed = capsys.readouterr().out
    assert printed == OUTPUT.get((page, number), printed)


QUICK = ("tutorials/convert.md",)


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(
    "page",
    [pytest.param(p, marks=() if p in QUICK else pytest.mark.slow) for p in TUTORIALS],
)
def test_a_tutorial_runs_from_its_first_block_to_its_last(page):
    pytest.importorskip("lightning_fabric")
    blocks = pages.code(page)
    assert len(blocks) >= 3
    names = {"__name__": "tutorial"}
    for number, block in enumerate(blocks):
        exec(compile(block, f"{page}, block {number + 1}", "exec"), names)


@pytest.mark.parametrize("page", [page for page in pages.PAGES if pages.commands(page)])
def test_commands_are_understood(page, parse):
    for words in pages.commands(page):
        parse(words)


@pytest.mark.parametrize("page", pages.PAGES)
def test_scripts_are_there_and_know_their_options(page):
    for line in re.findall(r"python ((?:benchmarks|examples)/[^`#\n]+)", pages.read(page)):
        script, *words = line.split()
        text = (pages.ROOT / script).read_text(encoding="utf-8")
        for word in words:
            if word.startswith("--"):
                assert f'"{word}"' in text, line


def test_examples_in_the_help_are_understood(parse):
    from primal_attention.cli.page import commands

    found = 0
    for _, command in commands():
        if command.epilog:
            for line in re.sub(r"^Examples?: ", "", command.epilog).split("; "):
                parse(shlex.split(line)[1:])
                found += 1
    assert found >= 8
