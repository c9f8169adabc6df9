"""Checkpoints come back to the last bit, or are known to be damaged."""

import dataclasses
import itertools
import json
import os
from pathlib import Path

import pytest
import torch
from torch import nn

from primal_attention.train import RunError, checkpoint
from primal_attention.train.checkpoint import Checkpoint, load_optimizer_state, optimizer_state
from primal_attention.train.optim import OPTIMIZERS, make_optimizer

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.bool]


def some(step=3):
    torch.manual_seed(0)
    tensors = {str(dtype): (torch.randn(3, 5) * 100).to(dtype) for dtype in DTYPES}
    tensors["scalar"] = torch.tensor(7.0)
    tensors["empty"] = torch.empty(0, 4)
    tensors["strided"] = torch.randn(4, 6).T
    tensors["nan"] = torch.tensor([float("nan"), float("inf"), -0.0])
    return Checkpoint(tensors, {"a/step": torch.tensor(3.0)}, {"groups": []}, {"step": step})


def bits(tensor):
    whole = tensor.contiguous().flatten().view(torch.uint8) if tensor.numel() else tensor
    return tensor.dtype, tuple(tensor.shape), whole.tolist()


def test_round_trip(tmp_path):
    saved = some()
    checkpoint.save(tmp_path, 3, saved)
    assert {p.name for p in (tmp_path / "step-00000003").iterdir()} == {
        "weights.safetensors", "optimizer.safetensors", "state.json",
    }  # fmt: skip
    loaded = checkpoint.load_latest(tmp_path)
    assert loaded.state == saved.state
    assert loaded.scalars == saved.scalars
    assert set(loaded.weights) == set(saved.weights)
    for name, tensor in saved.weights.items():
        assert bits(loaded.weights[name]) == bits(tensor), name
    assert bits(loaded.optimizer["a/step"]) == bits(torch.tensor(3.0))


def test_the_best_weights_belong_to_it(tmp_path):
    saved = dataclasses.replace(some(), best={"w": torch.tensor([0.1, -0.0])})
    checkpoint.save(tmp_path, 3, saved)
    assert bits(checkpoint.load_latest(tmp_path).best["w"]) == bits(saved.best["w"])
    checkpoint.save(tmp_path, 4, some(4))
    assert checkpoint.load_latest(tmp_path).best == {}
    checkpoint.save(tmp_path, 5, dataclasses.replace(some(5), best=saved.best))
    (tmp_path / "step-00000005" / "best.safetensors").write_bytes(b"")
    assert checkpoint.load_latest(tmp_path).state == {"step": 4}


def test_the_last_two_are_kept(tmp_path):
    for step in (1, 5, 20, 100):
        checkpoint.save(tmp_path, step, some(step))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000020", "step-00000100"]
    assert checkpoint.load_latest(tmp_path).state == {"step": 100}


def test_nothing_there(tmp_path):
    assert checkpoint.load_latest(tmp_path) is None
    assert checkpoint.load_latest(tmp_path / "checkpoints") is None


@pytest.mark.parametrize(
    "look", [checkpoint.load_latest, lambda folder: checkpoint.clean(folder, 1)]
)
def test_a_folder_that_is_moved_while_it_is_looked_through(look, tmp_path, monkeypatch):
    folder = tmp_path / "checkpoints"
    checkpoint.save(folder, 1, some(1))

    def search(path, pattern):
        path.rename(path.with_name("moved"))
        yield from os.scandir(path)

    monkeypatch.setattr(Path, "glob", search)
    with pytest.raises(RunError, match=r"cannot read .*checkpoints: no such file"):
        look(folder)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-5])


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def remove(path):
    path.unlink()


def reshape(path):
    path.write_text('{"files": [], "state": 3}')


def deepen(path):
    path.write_text("[" * 100_000)


@pytest.mark.parametrize(
    ("name", "harm"),
    [
        *itertools.product(
            ["weights.safetensors", "optimizer.safetensors"], [truncate, flip, remove]
        ),
        *itertools.product(["state.json"], [truncate, remove, reshape, deepen]),
    ],
)
def test_damage_is_found(name, harm, tmp_path):
    for step in (1, 2):
        checkpoint.save(tmp_path, step, some(step))
    harm(tmp_path / "step-00000002" / name)
    assert checkpoint.load_latest(tmp_path).state == {"step": 1}
    checkpoint.clean(tmp_path, 1)
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000001"]


def test_left_overs_are_removed(tmp_path):
    checkpoint.save(tmp_path, 1, some())
    (tmp_path / ".tmp-step-00000002-abcd").mkdir()
    (tmp_path / ".tmp-step-00000002-abcd" / "weights.safetensors").write_bytes(b"x")
    assert checkpoint.load_latest(tmp_path) is not None
    checkpoint.clean(tmp_path, 1)
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000001"]


def step(model, optimizer, seed):
    torch.manual_seed(seed)
    optimizer.zero_grad()
    model(torch.randn(6, 4, dtype=model[0].weight.dtype)).square().mean().backward()
    optimizer.step()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", [*OPTIMIZERS, "sgd"])
def test_optimizers_go_on_to_the_last_bit(name, dtype, tmp_path):
    def build():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)).to(dtype)
        if name == "sgd":
            return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        return model, make_optimizer(name, model.parameters(), lr=0.1, weight_decay=0.1)

    model, optimizer = build()
    for seed in range(7):  # past the first steps of RAdam
        step(model, optimizer, seed)
    tensors, scalars = optimizer_state(model, optimizer)
    checkpoint.save(tmp_path, 7, Checkpoint(model.state_dict(), tensors, scalars, {}))
    loaded = checkpoint.load_latest(tmp_path)
    other, its = build()
    other.load_state_dict(loaded.weights)
    load_optimizer_state(other, its, loaded.optimizer, loaded.scalars)
    for seed in range(7, 10):
        step(model, optimizer, seed)
        step(other, its, seed)
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)
    states = [optimizer_state(model, optimizer)[0], optimizer_state(other, its)[0]]
    assert len(states[0]) >= 4
    assert {k: bits(v) for k, v in states[0].items()} == {k: bits(v) for k, v in states[1].items()}


def test_an_optimizer_of_another_model_is_refused(tmp_path):
    model = nn.Linear(3, 2)
    optimizer = make_optimizer("adam", model.parameters(), lr=0.1)
    tensors, scalars = optimizer_state(model, optimizer)
    scalars = json.loads(json.dumps(scalars))
    assert scalars["groups"][0]["params"] == ["weight", "bias"]
    scalars["groups"][0]["params"].reverse()
    with pytest.raises(ValueError, match="other parameters than the model"):
        load_optimizer_state(model, optimizer, tensors, scalars)
