"""What the pages need beyond Markdown: formulas as MathML, and pictures that lie outside docs/."""

from __future__ import annotations

import posixpath
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any, Literal

from latex2mathml.converter import convert
from markdown import Markdown
from markdown.blockprocessors import BlockProcessor
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
INLINE = r"(?<![\\$\w])\$(?![\s$])([^$\n]+(?:\n[^$\n]+)*?)(?<![\s\\])\$(?![\w$])"
OUTSIDE = re.compile(r"(!\[[^\]]*\]\()((?:\.\./)+)([^)\s]+\.(?:png|svg))(?=\))")
DISPLAY = re.compile(r"\$\$\s*(.+?)\s*\$\$\s*(?:\((\d+)\))?\s*", flags=re.DOTALL)


def on_config(config: Any) -> None:
    config.markdown_extensions.append(Formulas())


def on_files(files: Files, config: Any) -> None:
    """Take along the pictures that pages show from elsewhere in the repository."""
    for page in list(files.documentation_pages()):
        for found in OUTSIDE.finditer(page.content_string):
            place = _place(page, found)
            if place is not None and files.get_file_from_path(place) is None:
                content = (ROOT / place).read_bytes()
                files.append(File.generated(config, place, content=content))


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point to where these pictures lie in the site."""

    def inside(found: re.Match[str]) -> str:
        place, folder = _place(page.file, found), posixpath.dirname(page.file.src_uri)
        return found[0] if place is None else found[1] + posixpath.relpath(place, folder or ".")

    return OUTSIDE.sub(inside, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """The lines that name tests are set apart."""
    return html.replace("<p>Checked", '<p class="checked">Checked')


def _place(page: File, found: re.Match[str]) -> str | None:
    """The path from the root of the repository of a picture outside docs/."""
    target = posixpath.normpath(
        posixpath.join("docs", posixpath.dirname(page.src_uri), found[2] + found[3])
    )
    return None if target.startswith(("docs/", "../")) or not (ROOT / target).exists() else target


def mathml(formula: str, display: Literal["inline", "block"] = "inline") -> str:
    """A formula for the browser; what the converter does not know must not pass as text."""
    converted = convert(formula, display=display)
    if "\\" in converted or "<mi>&</mi>" in converted:
        raise PluginError(f"not a formula that can be shown: {formula}")
    return converted


class Formulas(Extension):
    """$...$ in a line, $$...$$ as a block of its own, with its number in brackets behind it."""

    def extendMarkdown(self, md: Markdown) -> None:
        # after code (190), before the backslash escapes (180)
        md.inlinePatterns.register(_Inline(INLINE, md), "formula", 185)
        md.parser.blockprocessors.register(_Display(md.parser), "display", 75)


class _Inline(InlineProcessor):
    def handleMatch(self, m: re.Match[str], data: str) -> tuple[str, int, int]:
        return self.md.htmlStash.store(mathml(m[1])), m.start(0), m.end(0)


class _Display(BlockProcessor):
    def test(self, parent: ET.Element, block: str) -> bool:
        return DISPLAY.fullmatch(block) is not None

    def run(self, parent: ET.Element, blocks: list[str]) -> None:
        formula, number = DISPLAY.fullmatch(blocks.pop(0)).groups()  # `test` saw that it matches
        box = ET.SubElement(parent, "div", {"class": "formula"})
        inner = ET.SubElement(box, "div")
        inner.text = self.parser.md.htmlStash.store(mathml(formula, "block"))
        if number:
            ET.SubElement(box, "span", {"id": f"equation-{number}"}).text = f"({number})"
