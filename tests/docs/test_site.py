"""The built site: strict, and without any network. Needs the extra `docs`."""

import re
import subprocess
import sys

import pytest

from ..browser import Browser, needs_browser
from .pages import PAGES, ROOT

pytest.importorskip("mkdocs", reason="needs the extra docs: make docs")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def test_every_page_is_there_and_asks_for_nothing_from_elsewhere(site):
    for page in PAGES:
        html = (site / page).with_suffix(".html").read_text(encoding="utf-8")
        loaded = re.findall(
            r"<(?:link|script|img|iframe)\b[^>]*\b(?:src|href)=\"?([^\"\s>]+)", html
        )
        assert loaded
        assert [place for place in loaded if "//" in place] == []
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(\W?(?:https?:)?//", style.read_text(encoding="utf-8"))


def test_formulas_are_mathml(site):
    html = (site / "mathematics.html").read_text(encoding="utf-8")
    assert html.count('display="block"') >= 10
    assert '<span id="equation-11">(11)</span>' in html
    assert "$" not in re.sub(r"<(script|code|style)\b.*?</\1>", "", html, flags=re.DOTALL)


def test_pictures_from_outside_come_along(site):
    assert (site / "benchmarks" / "results" / "attention.png").exists()


@needs_browser
def test_no_page_is_wider_than_a_phone(site, tmp_path):
    browser = Browser(tmp_path / "profile")
    try:
        for page in PAGES:
            browser.open((site / page).with_suffix(".html"), width=400, height=800)
            assert browser.run("document.documentElement.scrollWidth") == 400, page
            assert browser.problems() == [], page
    finally:
        browser.close()
