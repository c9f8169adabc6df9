"""What commands leave beside their results: files, and pictures where matplotlib is at hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ..bench import match_accuracies, read_results
from ..runs.extras import is_installed
from ..runs.files import write_texts
from ..train.config import EngineConfig
from ..train.sweep import Point, Store, make_map, points_csv, summarise, varied
from ..train.sweep.space import Space
from .bench_figures import bubbles, growth
from .sweep_figures import sweep_map


def draw_bench(folder: Path, accuracies: Mapping[str, float]) -> str:
    """All pictures of a benchmark in its folder, which does not fail for want of them; returns what
    there is to say about it."""
    if not is_installed("matplotlib"):
        missing = "no pictures: they need matplotlib; install 'primal-attention[plot]'"
        return missing if accuracies else ""
    try:
        growth(folder)
        if accuracies:
            matched = match_accuracies(read_results(folder), dict(accuracies))
            bubbles(folder, matched)
            if len(matched) < len(accuracies):
                return f"accuracies of {len(accuracies)} names, {len(matched)} measured here"
    except (OSError, ValueError) as error:
        return f"no pictures: {error}"
    return ""


def write_sweep(
    configs: Sequence[EngineConfig], space: Space, store: Store
) -> tuple[list[Point], list[Path]]:
    """The points of a sweep, and the files about them in its store: results.csv, and over two
    settings map.csv with a picture."""
    names = varied(space) or list(space)
    points = summarise(configs, names, store.outcomes())
    texts = {"results.csv": points_csv(points)}
    found = make_map(points, *names[:2]) if len(names) >= 2 else None
    if found is not None:
        texts["map.csv"] = found.csv()
    written = write_texts(store.root, texts)
    if found is not None and is_installed("matplotlib") and any(p.finished for p in points):
        written += sweep_map(found, store.root / "map", title=configs[0].task)
    return points, written
