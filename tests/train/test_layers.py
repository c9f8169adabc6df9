"""J and Lambda after an epoch: what the diagnostics say, and no trace of having looked."""

import copy

import pytest
import torch

import primal_attention as pa
from primal_attention.analysis import ksvd_diagnostics
from primal_attention.tasks import get_task
from primal_attention.tasks.classification.objective import LOOKED_AT, Classification
from primal_attention.train import read_metrics, train
from primal_attention.train.checkpoint import load_latest
from primal_attention.train.layers import primal_layers


@pytest.fixture
def make(config):
    def build(**changes):
        settings = config(**changes)
        data = Classification.load(get_task(settings.task), settings)
        torch.manual_seed(0)
        model = data.model().double()
        batch = data.selection.__getitems__(list(range(4)))
        return model, (batch.inputs.double(), batch.padding)

    return build


@pytest.mark.parametrize("kind", ["data", "free", "tied"])
def test_J_is_that_of_the_diagnostics(kind, make):
    model, call = make(attention=("softmax", "primal"), weights=kind)
    (name,) = found = primal_layers(model, [call, [part[:2] for part in call]])
    assert name == "encoder.layers.1.attention"
    expected = ksvd_diagnostics(model, [call, tuple(part[:2] for part in call)]).layers[0]
    assert found[name]["objective"] == pytest.approx(expected.objective.mean(0), rel=1e-5)
    lam = model.get_submodule(name).sqrt_lambda.detach().square().flatten()
    for value, share in zip(found[name]["lambda"], (0.1, 0.5, 0.9), strict=True):
        assert value == pytest.approx(torch.quantile(lam, share).item(), rel=1e-5)


def test_nothing_is_left_behind(make):
    model, call = make(dropout=0.5)
    model.train()
    before, random = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    primal_layers(model, [call])
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())
    assert all(module.training for module in model.modules())
    assert model.encoder.layers[0].attention.dropout == 0.5
    with pytest.raises(RuntimeError, match="no forward pass"):
        pa.ksvd_loss(model)


def test_what_is_not_finite_is_none(make):
    model, call = make()
    torch.nn.init.constant_(model.encoder.layers[0].attention.sqrt_lambda, torch.inf)
    first, second = primal_layers(model, [call]).values()
    assert first == {"objective": [None, None], "lambda": [None, None, None]}
    assert None not in second["lambda"]


def test_without_primal_layers_nothing_is_run(make):
    model, _ = make(attention=("softmax",))
    assert primal_layers(model, iter([("not", "a call")])) == {}


def test_the_last_epoch_is_the_trained_model(config, tmp_path):
    settings = config(epochs=2, eta=0.0, ema=0.5)
    run = train(settings, root=tmp_path).run
    first, last = (m["primal_layers"] for m in read_metrics(run) if m["kind"] == "epoch")
    assert first != last
    data = Classification.load(get_task(settings.task), settings)
    model = data.model()
    weights = load_latest(run / "checkpoints").weights
    average = {n.removeprefix("average/"): t for n, t in weights.items() if "average/" in n}
    model.load_state_dict(average)
    batch = data.selection.__getitems__(list(range(min(LOOKED_AT, len(data.selection)))))
    again = primal_layers(model, [(batch.inputs, batch.padding)])
    for name, record in last.items():
        assert record["objective"] == pytest.approx(again[name]["objective"], rel=1e-4)
        assert record["lambda"] == again[name]["lambda"]
