"""What the package says of its own runs belongs to settings that it still has."""

import dataclasses

import pytest

from primal_attention.reproduce.cells import cells_of
from primal_attention.reproduce.published import TRAINED, published, published_lines
from primal_attention.train.config import config_of
from primal_attention.train.sweep.store import key_of


@pytest.fixture(autouse=True)
def without_data(monkeypatch):
    monkeypatch.delenv("PRIMAL_ATTENTION_DATA", raising=False)


def test_settings_and_their_hash_agree():
    for fingerprint, outcome in published().items():
        assert key_of(config_of(outcome.settings)) == fingerprint
        assert outcome.status == "finished"
        assert (outcome.run, outcome.settings["data_dir"]) == ("", None)


def test_every_outcome_stands_in_a_table():
    """Settings of a table that change leave the runs behind that were made with the old ones."""
    cells = [
        cell
        for name in TRAINED
        for protocol in ("paper", "holdout")
        for cell in cells_of(name, protocol=protocol, with_data=False)
    ]
    seeds = {one.settings["seed"] for one in published().values()}
    wanted = {
        key_of(dataclasses.replace(cell.config, seed=seed))
        for cell in cells
        if cell.config is not None
        for seed in seeds
    }
    assert set(published()) <= wanted


def test_all_seeds_of_a_cell_count():
    lines = {(line.row, line.column): line for line in published_lines("table1")}
    line = lines["JapaneseVowels", "Primal.+Trans."]
    own = [
        one.accuracy
        for one in published().values()
        if one.settings["task"] == "uea/JapaneseVowels"
        and one.settings["attention"] == ["softmax", "primal"]
    ]
    assert (line.ours.seeds, line.missing) == (len(own), ())
    assert line.ours.mean == pytest.approx(100 * sum(own) / len(own))
    assert lines["PEMS-SF", "Flow."].why == "not among the published runs"
    assert published_lines("table1", "PEMS-SF", protocol="holdout")[0].ours is None
