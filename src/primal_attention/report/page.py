"""One HTML file about runs and benchmarks: nothing is loaded from elsewhere, it opens from disk.

from primal_attention.report.page import write_page

write_page(["runs/first", "runs/second"], "report.html")
"""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Iterable
from dataclasses import replace
from html import escape
from importlib import resources
from pathlib import Path

from ..runs.files import explained, write_bytes
from ..version import __version__
from .run_spectra import INPUTS
from .sections.base import Section
from .sections.bench import bench
from .sections.calibration import calibration
from .sections.conclusions import conclude
from .sections.confusion import confusion
from .sections.costs import costs
from .sections.curves import curves
from .sections.events import events
from .sections.explain import explain
from .sections.ksvd import ksvd
from .sections.paper import paper
from .sections.read import Sources, TrainCommand, read_sources
from .sections.settings import settings
from .sections.spectrum import Spectra, find_spectra, spectrum
from .sections.sweep import sweep
from .sections.verdict import verdict


def write_page(
    paths: Iterable[Path | str],
    out: Path | str,
    *,
    spectra: bool = True,
    inputs: int = INPUTS,
    title: str | None = None,
    command: str | None = None,
    train_command: TrainCommand | None = None,
) -> Path:
    """Write the page of run folders, folders of seeds and benchmarks, or folders of these.

    `spectra`: look at the attention matrices of the best weights on `inputs` cases, where weights
    and data are available. `command` is what the page says that made it; `train_command(config,
    seeds)` gives the command line that trained a run.
    """
    folders = [str(path) for path in paths]
    if inputs < 1:
        raise ValueError(f"inputs is {inputs}; expected at least 1")
    made_by = command or shlex.join(["primal", "report", *folders, "--out", str(out)])
    sources = read_sources(folders, made_by, train_command)
    found = find_spectra(sources, inputs) if spectra else Spectra({})
    path = Path(out)
    with explained(f"write {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, page(sources, found, title).encode())
    return path


def page(sources: Sources, spectra: Spectra, title: str | None = None) -> str:
    """The whole page as HTML."""
    found = [
        verdict(sources),
        paper(sources),
        curves(sources),
        events(sources),
        confusion(sources),
        calibration(sources),
        explain(sources),
        spectrum(sources, spectra),
        ksvd(sources, spectra),
        sweep(sources),
        costs(sources),
        bench(sources),
        settings(sources),
    ]
    sections = [
        replace(section, lead=conclude(section.id, sources, spectra))
        for section in found
        if section is not None
    ]
    return document(title or _title(sources), sections, sources.command)


def _title(sources: Sources) -> str:
    tasks = dict.fromkeys(entry.config.task for entry in sources.entries)
    return ", ".join(tasks) or ", ".join(one.name for one in sources.benches)


def document(title: str, sections: list[Section], command: str) -> str:
    """Sections as one HTML file."""
    body = "\n".join(one.html() for one in sections)
    style, script = asset("page.css"), asset("page.js")
    links = "".join(f'<a href="#{one.id}">{escape(one.title)}</a>' for one in sections)
    # nothing may be loaded, and no script but this one may run
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>
{style}</style>
</head>
<body>
<header>
<h1>{escape(title)}</h1>
<button type="button" id="theme" aria-label="light or dark">◐</button>
<nav>{links}</nav>
</header>
<main>
{body}
</main>
<footer><p>primal-attention {__version__}</p><pre>{escape(command)}</pre></footer>
<div id="tip" hidden></div>
<script>{script}</script>
</body>
</html>
"""


def asset(name: str) -> str:
    """A file of the folder assets."""
    return (resources.files(__package__) / "assets" / name).read_text(encoding="utf-8")
