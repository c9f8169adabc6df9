"""The pages fit together: the navigation, the links, and the tests that the mathematics names."""

import ast
import functools
import re

import pytest
import yaml

from .pages import DOCS, PAGES, ROOT, prose, read

THEORY = ("mathematics.md", "computation.md")
LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def paths(nav) -> list[str]:
    """The pages of a part of the navigation, in their order."""
    if isinstance(nav, str):
        return [nav]
    below = nav.values() if isinstance(nav, dict) else nav
    return [path for part in below for path in paths(part)]


def slug(heading: str) -> str:
    """The anchor of a heading, as Python-Markdown makes it."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


def anchors(page: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", prose(page), flags=re.MULTILINE)
    return {slug(heading) for heading in headings}


def test_the_navigation_names_every_page_once():
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert sorted(paths(config["nav"])) == PAGES


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_one_title(page):
    titles = re.findall(r"^# .+$", prose(page), flags=re.MULTILINE)
    assert len(titles) == 1
    assert read(page).startswith(titles[0])


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    for link in LINK.findall(prose(page)):
        path, _, anchor = link.partition("#")
        if "://" in link:
            continue
        target = (DOCS / page).parent / path if path else DOCS / page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target.resolve().relative_to(DOCS).as_posix()), link


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_beside_the_pages_lead_somewhere(name):
    for link in LINK.findall((ROOT / name).read_text(encoding="utf-8")):
        path, _, anchor = link.partition("#")
        if "://" in link:
            continue
        assert (ROOT / path).exists(), link
        if anchor:
            assert anchor in anchors((ROOT / path).relative_to(DOCS).as_posix()), link


@functools.cache
def defined_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return {function.name for function in functions if function.name.startswith("test_")}


@pytest.mark.parametrize("page", THEORY)
def test_the_named_tests_exist(page):
    named = NAMED.findall(read(page))
    assert len(named) >= 20
    missing = [f"{path}::{name}" for path, name in named if name not in defined_in(path)]
    assert missing == []
    assert read(page).count("`tests/") == len(named)  # none is spelled otherwise


def test_every_statement_of_the_theory_is_checked():
    quotes = re.findall(r"(?:^>.*\n)+", read("mathematics.md"), flags=re.MULTILINE)
    stated = [quote for quote in quotes if re.match(r"> \*\*\w+ \d\.\d", quote)]
    titles = [re.match(r"> \*\*(\w+ \d\.\d)", quote)[1] for quote in stated]
    assert titles == [
        "Definition 2.1", "Theorem 2.2", "Remark 3.1", "Theorem 3.2", "Remark 3.3", "Remark 3.4",
        "Remark 4.1", "Lemma 4.2",
    ]  # fmt: skip
    for title, quote in zip(titles, stated, strict=True):
        last = quote.split("\n>\n")[-1]
        assert last.startswith("> Checked"), title
        assert NAMED.search(last), title


def test_every_section_of_the_computation_is_checked():
    sections = read("computation.md").split("\n## ")[1:]
    assert len(sections) >= 8
    for section in sections:
        checks = [part for part in section.split("\n\n") if part.startswith("Checked")]
        assert checks, section.partition("\n")[0]
        assert all(NAMED.search(check) for check in checks)


@pytest.mark.parametrize("page", PAGES)
def test_formulas_are_closed(page):
    """Dollars stand in pairs, in a line or around a block."""
    text = prose(page).replace("\n> ", "\n")
    assert len(re.findall(r"^\$\$(?: \(\d+\))?$", text, flags=re.MULTILINE)) % 2 == 0
    for paragraph in re.sub(r"\$\$.*?\$\$", "", text, flags=re.DOTALL).split("\n\n"):
        assert paragraph.count("$") % 2 == 0, paragraph
