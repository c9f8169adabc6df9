"""Saving and loading with a base model."""

import copy
import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from primal_attention.convert import (
    check_optimizer,
    convert_,
    converted_layers,
    load,
    plan,
    revert_,
    save,
)

X = torch.randn(2, 5, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def base(encoder):
    return copy.deepcopy(encoder)


@pytest.fixture
def model(base, encoder, awaken):
    return awaken(convert_(encoder, layers=slice(1, 3), rank=4, weights="tied"))


@pytest.mark.parametrize("weights", ["all", "converted"])
def test_round_trip(model, base, tmp_path, weights):
    original = base(X)
    assert save(model, tmp_path / "a" / "b", weights=weights) == tmp_path / "a" / "b"
    loaded = load(tmp_path / "a" / "b", base=base)
    assert loaded is base
    assert torch.equal(loaded(X), model(X))
    assert converted_layers(loaded) == [loaded.layers[1].self_attn, loaded.layers[2].self_attn]
    assert torch.equal(revert_(loaded)(X), original)


def test_an_optimizer_from_before_loading_is_detected(model, base, tmp_path):
    save(model, tmp_path)
    early = torch.optim.SGD(base.parameters(), lr=0.1)
    load(tmp_path, base=base)
    with pytest.raises(ValueError, match=r"still holds 8 parameters .* load took out"):
        early.step()
    with pytest.raises(ValueError, match="still holds 8 parameters"):
        check_optimizer(base, early)
    late = torch.optim.SGD(base.parameters(), lr=0.1)
    base(X).square().mean().backward()
    late.step()
    revert_(base)
    early.step()  # right again


def test_a_failed_load_leaves_optimizers_alone(model, base, tmp_path):
    with torch.no_grad():
        model.layers[0].linear1.weight.add_(1.0)
    save(model, tmp_path, weights="converted")
    early = torch.optim.SGD(base.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="other numbers"):
        load(tmp_path, base=base)
    early.step()


def test_a_trained_model_needs_all_weights(model, base, tmp_path):
    with torch.no_grad():
        model.layers[0].linear1.weight.add_(1.0)
    save(model, tmp_path, weights="converted")
    modules = list(base.modules())
    with pytest.raises(ValueError, match="other numbers in its unconverted layers"):
        load(tmp_path, base=base)
    assert list(base.modules()) == modules
    save(model, tmp_path)
    assert torch.equal(load(tmp_path, base=base)(X), model(X))


def test_it_is_small(model, tmp_path):
    save(model, tmp_path)
    whole = (tmp_path / "weights.safetensors").stat().st_size
    save(model, tmp_path, weights="converted")
    assert (tmp_path / "weights.safetensors").stat().st_size < whole / 2
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "conversion.json", "weights.safetensors",
    ]  # fmt: skip
    record = json.loads((tmp_path / "conversion.json").read_text())
    assert record["layers"][0]["settings"]["rank"] == 4


@pytest.mark.parametrize(
    "other",
    [
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 24, batch_first=True), 2),
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 25, batch_first=True), 3),
        lambda: nn.Linear(2, 2),
    ],
)
def test_a_wrong_base_is_refused(model, tmp_path, other):
    save(model, tmp_path)
    wrong = other()
    modules = list(wrong.modules())
    with pytest.raises(ValueError, match="another model than the one that was converted"):
        load(tmp_path, base=wrong)
    assert list(wrong.modules()) == modules


def test_a_converted_base_is_refused(model, tmp_path):
    save(model, tmp_path)
    with pytest.raises(ValueError, match="converted already"):
        load(tmp_path, base=model)


@pytest.mark.parametrize("weights", ["all", "converted"])
def test_shared_parameters(tmp_path, weights):
    def build():
        torch.manual_seed(0)
        attention = nn.MultiheadAttention(16, 2, batch_first=True)
        return nn.ModuleDict({"a": attention, "b": nn.ModuleList([attention])})

    model = convert_(build(), rank=4, weights="data")
    save(model, tmp_path, weights=weights)
    loaded = load(tmp_path, base=build())
    assert loaded["a"] is loaded["b"][0]
    assert torch.equal(loaded["a"].primal.w_e, model["a"].primal.w_e)


def test_heads_count_although_shapes_do_not_tell(model, base, tmp_path):
    save(model, tmp_path)
    base.layers[0].self_attn.num_heads = 4
    with pytest.raises(ValueError, match="another model than the one that was converted"):
        load(tmp_path, base=base)


def test_a_part_of_a_larger_model(model, base, tmp_path):
    save(nn.Sequential(nn.Identity(), model), tmp_path)
    loaded = load(tmp_path, base=nn.Sequential(nn.Identity(), base))
    assert torch.equal(loaded(X), model(X))


READER = """
import sys, torch
from primal_attention.convert import load
print({"transformers", "safetensors", "timm", "matplotlib", "typer"} & set(sys.modules))
from safetensors.torch import load_file
layer = torch.nn.TransformerEncoderLayer(16, 2, 24, batch_first=True)
base = torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).double().eval()
test = load_file(f"{sys.argv[1]}/test.safetensors")
print(torch.equal(load(sys.argv[1], base=base)(test["x"]), test["out"]))
"""


def test_a_fresh_process(model, tmp_path):
    save(model, tmp_path)
    save_file({"x": X, "out": model(X).detach()}, tmp_path / "test.safetensors")
    done = subprocess.run(
        [sys.executable, "-c", READER, str(tmp_path)], capture_output=True, text=True, timeout=120
    )
    # nothing heavy comes with the room; the outputs are equal
    assert done.stdout.split() == ["set()", "True"], done.stderr


def test_parameters_that_are_views_of_one_tensor(model, base, tmp_path):
    whole = torch.randn(32, dtype=torch.float64)
    model.layers[0].linear2.bias.data, model.layers[0].norm1.bias.data = whole.chunk(2)
    save(model, tmp_path)
    assert torch.equal(load(tmp_path, base=base)(X), model(X))


def test_saved_again_after_loading(model, base, tmp_path):
    save(model, tmp_path / "one")
    save(load(tmp_path / "one", base=copy.deepcopy(base)), tmp_path / "two")
    assert torch.equal(load(tmp_path / "two", base=base)(X), model(X))


def test_broken_folders(model, base, tmp_path):
    with pytest.raises(ValueError, match="expected a folder that save wrote"):
        load(tmp_path, base=base)
    save(model, tmp_path)
    record = json.loads((tmp_path / "conversion.json").read_text())
    (tmp_path / "conversion.json").write_text(json.dumps(record | {"format": 99}))
    with pytest.raises(ValueError, match="format 99; expected 1"):
        load(tmp_path, base=base)
    (tmp_path / "conversion.json").write_text("{")
    with pytest.raises(ValueError, match="is not JSON"):
        load(tmp_path, base=base)
    (tmp_path / "conversion.json").write_text(json.dumps(record))
    named = load_file(tmp_path / "weights.safetensors")
    modules = list(base.modules())
    lost = "layers.2.self_attn.primal.sqrt_lambda"
    for change, message in (
        ({lost: named[lost][:1]}, "sqrt_lambda in weights.safetensors has shape"),
        ({"more": named[lost].clone()}, "differ in more"),
    ):
        save_file(named | change, tmp_path / "weights.safetensors")
        with pytest.raises(ValueError, match=message):
            load(tmp_path, base=base)
    assert list(base.modules()) == modules


def test_refusals(encoder, base, tmp_path):
    with pytest.raises(ValueError, match="no converted layer"):
        save(encoder, tmp_path)
    convert_(encoder, plan(encoder, rank=4))
    with pytest.raises(ValueError, match="weights is 'some'"):
        save(encoder, tmp_path, weights="some")
    save(encoder, tmp_path)
    with pytest.raises(ValueError, match="expected base, the unconverted model"):
        load(tmp_path)
    save(encoder, tmp_path, weights="converted")
    with pytest.raises(ValueError, match="expected base to be a model"):
        load(tmp_path)


DAMAGE = {
    "no layers": (lambda record: record.pop("layers"), "layers is None; expected a list"),
    "layers as text": (lambda record: record.update(layers="all"), "layers is 'all'; expected a"),
    "a layer as number": (lambda r: r.update(layers=[3]), r"layers\[0\] is 3; expected a dict"),
    "names as text": (lambda r: r["layers"][0].update(names="a"), "names is 'a'; expected a list"),
    "no base": (lambda record: record.pop("base"), "base is None; expected a dict"),
    "weights as list": (lambda r: r.update(weights=["all"]), r"weights is \['all'\]; expected a s"),
    "other weights": (lambda r: r.update(weights="al"), "weights is 'al'; expected one of all, c"),
    "no settings": (lambda record: record["layers"][0].pop("settings"), "KeyError"),
    "settings as list": (lambda record: record["layers"][0].update(settings=[1]), ""),
}


@pytest.mark.parametrize(("harm", "why"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_record_is_named(model, base, tmp_path, harm, why):
    save(model, tmp_path)
    path = tmp_path / "conversion.json"
    record = json.loads(path.read_text())
    harm(record)
    path.write_text(json.dumps(record))
    with pytest.raises(ValueError, match=rf"{path.name} is damaged: .*{why}"):
        load(tmp_path, base=base)


def test_damaged_files_are_named(model, base, tmp_path):
    save(model, tmp_path)
    (weights,) = tmp_path.glob("*.safetensors")
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(ValueError, match=f"cannot read .*{weights.name}: "):
        load(tmp_path, base=base)
    (tmp_path / "conversion.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match=r"conversion.json is not JSON: "):
        load(tmp_path, base=base)
