"""Runs that learn from tables: resumed to the last bit, judged on rows that chose nothing."""

import json
import math
import random

import pytest
import torch

from primal_attention.tasks import DataError
from primal_attention.train import Observer, read_metrics, resume, train
from primal_attention.train.config import settings_for
from primal_attention.train.run import load

SMALL = {
    "width": 16, "heads": 2, "feedforward": 16, "rank": 4, "frequencies": 2, "epochs": 2,
    "epoch_steps": 4,
}  # fmt: skip


class Interrupt(Observer):
    def step(self, event):
        if event.step == 3:
            raise KeyboardInterrupt


def config(people, **changes):
    return settings_for("table/csv", data=str(people), **{"target": "out", "id": "name"} | changes)


def test_interrupted_and_resumed_it_ends_the_same(people, tmp_path):
    settings = config(people, **SMALL)
    whole = train(settings, root=tmp_path, name="whole")
    with pytest.raises(KeyboardInterrupt):
        train(settings, root=tmp_path, name="cut", observer=Interrupt())
    assert not (tmp_path / "cut" / "memory.safetensors").exists()
    again = resume(tmp_path / "cut")
    for name in ("best.safetensors", "memory.safetensors", "reader.json", "data.json"):
        assert (again.run / name).read_bytes() == (whole.run / name).read_bytes()
    apart = {"seconds", "peak_memory_mb"}
    first, second = (
        {k: v for k, v in json.loads((run / "result.json").read_text()).items() if k not in apart}
        for run in (whole.run, again.run)
    )
    assert first == second


def test_a_figure_without_a_test_set_is_called_so(people, tmp_path):
    result = train(config(people, **SMALL), root=tmp_path)
    assert result.label == "validation accuracy; no test set here"
    assert not result.of_unseen
    assert sum(map(sum, result.confusion)) == 18  # of 120
    assert result.run.name.startswith("people-primal+primal")
    assert "the most frequent class, always" in result.rows(lambda **k: "")["without columns"]


def numbers(path, rows, seed):
    draw = random.Random(seed)
    lines = ["a,b,c,y"]
    for _ in range(rows):
        a, b, c = (draw.gauss(0, 1) for _ in range(3))
        lines.append(f"{a:.4f},{b:.4f},{c:.4f},{100 + 10 * (math.sin(a) + b):.4f}")
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_numbers_are_learned_and_told_in_their_unit(tmp_path):
    train_file, test = (numbers(tmp_path / f"{n}.csv", 150, i) for i, n in enumerate("ab"))
    given = {"data": train_file, "test": test, "target": "y"} | SMALL
    result = train(settings_for("table/csv", **given | {"epochs": 8, "lr": 0.01}), root=tmp_path)
    assert result.label == "test R2 of the epoch with the least validation loss"
    assert result.evaluated == 150
    assert result.r2 > 0.7
    assert result.alone == pytest.approx(math.sqrt(200 * 0.715), rel=0.25)
    assert result.rmse == pytest.approx(result.alone * math.sqrt(1 - result.r2), rel=0.05)
    epochs = [line for line in read_metrics(result.run) if line["kind"] == "epoch"]
    assert len(epochs) == 8
    best = min(epochs, key=lambda line: line["loss"])
    assert result.epoch == best["epoch"]
    assert result.validation_r2 == best["r2"]


def test_the_test_set_is_read_once_and_as_the_training_set_was(people, tmp_path):
    (tmp_path / "test.csv").write_text("age,city,since,out\n40,ulm,2026-01-01,perhaps\n")
    objective = load(config(people, test=str(tmp_path / "test.csv"), **SMALL))
    assert len(objective.known) + len(objective.held_out) == 120
    with pytest.raises(DataError, match="has the class 'perhaps'; expected one of no, yes"):
        objective.test()


def test_a_test_set_with_other_columns_is_refused_before_the_training(people, tmp_path):
    (tmp_path / "test.csv").write_text("age,city,out\n40,ulm,yes\n")
    with pytest.raises(DataError, match="has no column 'since'"):
        config(people, test=str(tmp_path / "test.csv"))
    (tmp_path / "test.csv").write_text("age,city,since\n40,ulm,\n")
    with pytest.raises(DataError, match="has no column 'out' for --target"):
        config(people, test=str(tmp_path / "test.csv"))


def test_scales_are_learned_from_the_training_part_alone(people):
    objective = load(config(people, **SMALL))
    ages = objective.known.numbers[:, 0]
    assert float(ages.nanmedian().abs()) < 0.05
    assert not torch.equal(objective.known.labels[:10].sort().values, objective.known.labels[:10])


def test_a_batch_leaves_rows_for_the_context(people):
    with pytest.raises(DataError, match="batch_size is 200; expected fewer than the 102 rows"):
        load(config(people, batch_size=200))
