"""Several seeds: a folder each, one summary."""

import json

import pytest

from primal_attention.runs.statistics import mean_interval
from primal_attention.train import NotFiniteError, RunError, resume, train_seeds
from primal_attention.train import run as runs


def test_mean_interval():
    # the t quantile for two degrees of freedom is 4.302653
    mean, deviation, interval = mean_interval([0.8, 0.9, 1.0])
    assert (mean, deviation) == (pytest.approx(0.9), pytest.approx(0.1))
    assert interval == pytest.approx((0.9 - 4.302653 * 0.1 / 3**0.5, 0.9 + 4.302653 * 0.1 / 3**0.5))
    assert mean_interval([0.7]) == (0.7, None, None)


def test_seeds(config, tmp_path, outcome, undisturbed):
    found = train_seeds(config(), [0, 3], root=tmp_path, name="many")
    folder = tmp_path / "many"
    assert found.run == folder
    assert set(found.results) == {0, 3}
    assert found.results[3].run == folder / "seed-3"
    assert outcome(folder / "seed-0") == outcome(undisturbed)
    summary = json.loads((folder / "summary.json").read_text())
    accuracies = [result.accuracy for result in found.results.values()]
    assert summary["mean"] == found.mean == pytest.approx(sum(accuracies) / 2)
    assert summary["accuracies"] == {"0": accuracies[0], "3": accuracies[1]}
    assert summary["interval"] == list(found.interval)
    assert summary["label"] == found.results[0].label
    assert resume(folder) == found


def test_seeds_are_resumed_as_a_whole(config, tmp_path, stop_at, outcome, undisturbed):
    with pytest.raises(KeyboardInterrupt):
        train_seeds(config(), (0, 1), root=tmp_path, name="many", observer=stop_at(5))
    assert not (tmp_path / "many" / "seed-1").exists()
    found = resume(tmp_path / "many")
    assert set(found.results) == {0, 1}
    assert outcome(tmp_path / "many" / "seed-0") == outcome(undisturbed)


def test_a_failed_seed_is_recorded(config, tmp_path, monkeypatch):
    real = runs._compute

    def compute(fabric, objective, *rest):
        if objective.config.seed == 1:
            raise NotFiniteError("it went wrong")
        return real(fabric, objective, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(runs, "_compute", compute)
        found = train_seeds(config(epochs=1), (0, 1, 2), root=tmp_path, name="many")
        assert found.failed == {1: "it went wrong"}
        assert set(found.results) == {0, 2}
        summary = json.loads((tmp_path / "many" / "summary.json").read_text())
        assert summary["failed"] == {"1": "it went wrong"}
        with pytest.raises(RunError, match="every seed failed: it went wrong"):
            train_seeds(config(epochs=1), [1], root=tmp_path)
    assert resume(tmp_path / "many").failed == {}  # tried again


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"config": {}, "see', "is not JSON"),
        ("[]", "names no seeds"),
        ('{"config": {}}', "names no seeds"),
        ('{"config": {}, "seeds": ["1"]}', "names no seeds"),
        ('{"seeds": [1]}', "has the settings None; expected a JSON object"),
        (
            '{"config": {"rank": 2}, "seeds": [1]}',
            "is damaged: .* lack a task",
        ),
    ],
)
def test_a_damaged_file_is_one_sentence(text, said, tmp_path):
    (tmp_path / "seeds.json").write_text(text)
    with pytest.raises(RunError, match=rf"seeds\.json {said}"):
        resume(tmp_path)


@pytest.mark.parametrize("seeds", [[], [1, 1], [0, -1]])
def test_bad_seeds(seeds, config, tmp_path):
    with pytest.raises(ValueError, match=r"seeds? is"):
        train_seeds(config(), seeds, root=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()
