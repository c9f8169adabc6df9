"""The pages of the documentation, and what stands in them."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


def read(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def code(page: str, language: str = "python") -> list[str]:
    """The fenced blocks of a language."""
    fence = rf"^```{language}\n(.*?)^```$"
    return re.findall(fence, read(page), flags=re.DOTALL | re.MULTILINE)


def bare(page: str) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", read(page), flags=re.DOTALL | re.MULTILINE)


def prose(page: str) -> str:
    """That, without code between backticks too."""
    return re.sub(r"`[^`\n]+`", "", bare(page))


def commands(page: str) -> list[list[str]]:
    """The command lines of `primal` in code, as words: a word `\\` at the end of a line joins the
    next, a comment ends it."""
    joined = re.sub(r"\s*\\\n\s*", " ", read(page))
    start = r"^(?: {4}|)(?:srun )?(?:primal|.*?-m primal_attention) (.+)$"
    lines = re.findall(start, joined, flags=re.MULTILINE)
    return [shlex.split(line, comments=True) for line in lines]
