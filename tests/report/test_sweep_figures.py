"""The map of a sweep."""

import pytest

from primal_attention.train.sweep import Map

pytest.importorskip("matplotlib")

from primal_attention.report.sweep_figures import sweep_map


def test_map(tmp_path):
    cells = {(20, 0.0): 0.5, (20, 0.1): 0.75, (30, 0.0): None, (30, 0.1): None}
    found = Map("rank", "eta", (20, 30), (0.0, 0.1), cells, frozenset({(30, 0.1)}))
    written = sweep_map(found, tmp_path / "map", title="a task")
    assert [path.name for path in written] == ["map.png", "map.svg"]
    text = written[1].read_text()
    for part in ("50.0", "75.0", "stopped", "rank", "eta", "a task"):
        assert part in text


def test_empty_map_is_refused(tmp_path):
    found = Map("rank", "eta", (20,), (0.0,), {(20, 0.0): None}, frozenset())
    with pytest.raises(ValueError, match="no finished run"):
        sweep_map(found, tmp_path / "map")
