"""Runs that learn events: from a file to predictions, resumed to the last bit, judged honestly."""

import csv
import io
import json

import pytest
import torch

from primal_attention.models.events import EventModel
from primal_attention.tasks import DataError, get_task
from primal_attention.tasks.events.objective import Events, split
from primal_attention.tasks.events.predict import predict_table
from primal_attention.tasks.events.sets import EventData
from primal_attention.train import Observer, resume, train, train_seeds
from primal_attention.train.config import EventConfig
from primal_attention.train.run import load
from primal_attention.train.streams import predict_events

from .conftest import log

SMALL = {
    "width": 16, "heads": 2, "feedforward": 16, "rank": 4, "epochs": 3, "batch_size": 8,
    "mixture": 2, "waves": 4, "eta": 0.1, "dropout": 0.1,
}  # fmt: skip


def config(table, **changes):
    return EventConfig(task="events/csv", data=str(table), **SMALL | changes)


class Interrupt(Observer):
    def step(self, event):
        if event.step == 4:
            raise KeyboardInterrupt


def test_interrupted_and_resumed_it_ends_the_same(table, tmp_path):
    whole = train(config(table), root=tmp_path, name="whole")
    with pytest.raises(KeyboardInterrupt):
        train(config(table), root=tmp_path, name="cut", observer=Interrupt())
    again = resume(tmp_path / "cut")
    for name in ("best.safetensors", "reader.json", "data.json"):
        assert (tmp_path / "cut" / name).read_bytes() == (whole.run / name).read_bytes()
    apart = {"seconds", "peak_memory_mb"}
    first, second = (
        {k: v for k, v in json.loads((run / "result.json").read_text()).items() if k not in apart}
        for run in (whole.run, again.run)
    )
    assert first == second


def test_from_a_file_to_predictions(table, tmp_path):
    (tmp_path / "test.csv").write_text(log(6, seed=1))
    result = train(
        config(table, test=str(tmp_path / "test.csv"), epochs=12, lr=0.01), root=tmp_path
    )
    assert result.split == "test"
    assert result.events == 6 * 14
    assert sum(result.observed) == result.events
    assert sum(result.expected) == pytest.approx(result.events, rel=1e-4)
    assert sum(result.pit) == pytest.approx(1.0)
    assert result.loss < result.baselines["majority"]["loss"]
    assert result.gap_loss < result.baselines["log-normal"]["gap_loss"] + 0.1
    assert len(result.timeline["times"]) == 14
    out = io.StringIO()
    assert predict_events(result.run, tmp_path / "test.csv", out) == 6
    rows = list(csv.DictReader(io.StringIO(out.getvalue())))
    assert [row["sequence"] for row in rows] == [f"u{i}" for i in range(6)]
    for row in rows:
        last, low, mid, high = (
            float(row[name])
            for name in ("last time", "time at 10 %", "time at 50 %", "time at 90 %")
        )
        assert last < low < mid < high
        chances = {name: float(row[f"p({name})"]) for name in "abc"}
        assert sum(chances.values()) == pytest.approx(1.0, abs=1e-5)
        assert max(chances, key=chances.get) == row["next type"]


def test_predictions_do_not_depend_on_the_company(table):
    torch.manual_seed(0)
    model, out, alone = EventModel(3, width=16, heads=2).eval(), io.StringIO(), io.StringIO()
    predict_table(model, "abc", table, out)
    lines = table.read_text().splitlines()
    one = table.with_name("one.csv")
    one.write_text("\n".join([lines[0], *(line for line in lines if line.startswith("u7,"))]))
    predict_table(model, "abc", one, alone)
    row = next(csv.DictReader(io.StringIO(alone.getvalue())))
    among = next(r for r in csv.DictReader(io.StringIO(out.getvalue())) if r["sequence"] == "u7")
    for name, value in row.items():
        if name not in ("sequence", "next type"):
            assert float(among[name]) == pytest.approx(float(value), rel=1e-4)


def test_known_times_have_no_gap_to_predict(table, tmp_path):
    result = train(config(table, known_time=True, epochs=1), root=tmp_path)
    assert result.gap_loss is None
    assert result.pit is None
    assert "known" in result.run.name
    with pytest.raises(DataError, match="expected a run without it"):
        predict_events(result.run, table, io.StringIO())


def test_the_test_set_is_read_once(table, monkeypatch):
    task, reads = get_task("events/csv"), []
    read = type(task).read
    monkeypatch.setattr(
        type(task),
        "read",
        lambda self, place, split: reads.append(split) or read(self, place, split),
    )
    objective = load(config(table, test=str(table)))
    assert "test" not in reads
    assert objective.test() is not None
    assert reads.count("test") == 1


def test_a_test_set_with_a_type_that_is_not_known_is_told_before_the_training(table, tmp_path):
    (tmp_path / "test.csv").write_text(log(sequences=2).replace(",c\n", ",d\n"))
    wrong = config(table, test=str(tmp_path / "test.csv"))
    for start in (train, lambda *a, **k: train_seeds(*a, [0, 1], **k)):
        with pytest.raises(DataError, match=r"has the type 'd', which the model does not know"):
            start(wrong, root=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_the_loss_is_a_mean_over_events_not_over_sequences(table):
    objective = load(config(table, gap_weight=1.0))
    model = objective.model().eval()
    data = objective.train
    short = data.subset([0])
    cut = type(data)("cut", (short.times[0][:3],), (short.types[0][:3],), data.names)
    both = type(data)("both", (*cut.times, data.times[1]), (*cut.types, data.types[1]), data.names)
    losses = [
        float(objective.loss(model, EventData(part).__getitems__(range(len(part)))).detach())
        for part in (cut, data.subset([1]), both)
    ]
    assert losses[2] == pytest.approx((2 * losses[0] + 14 * losses[1]) / 16, rel=1e-5)
    assert Events.terms(objective, [0, 1]) == 28


def test_sequences_are_held_out(table):
    data = load(config(table)).train
    kept, held_out = split(data, 0.2, 0)
    assert len(kept) + len(held_out) == len(data)
    assert not {t[-1] for t in kept.times} & {t[-1] for t in held_out.times}
    with pytest.raises(ValueError, match="has one sequence"):
        split(data.subset([0]), 0.2, 0)


def test_attentions_without_times_are_refused(table):
    with pytest.raises(ValueError, match="attention 'performer' does not know times"):
        config(table, attention=("performer",)).validate()
    with pytest.raises(ValueError, match="weights is 'free'"):
        config(table, weights="free").validate()


def test_a_start_at_the_cooccurrence_of_types(table):
    plain, started = (
        load(config(table, start=start)).model().embed.weight
        for start in ("random", "cooccurrence")
    )
    assert plain.shape == started.shape
    assert not torch.equal(plain, started)
