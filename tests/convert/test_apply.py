"""Converting and reverting: all or nothing, and back bit for bit."""

import copy

import pytest
import torch
from torch import nn

import primal_attention as pa
from primal_attention.convert import (
    apply,
    check_optimizer,
    convert_,
    converted_layers,
    plan,
    revert_,
)

X = torch.randn(2, 5, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("layers", ["last", "all"])
def test_revert_gives_back_the_original_bit_for_bit(encoder, layers):
    before, keys = encoder(X), list(encoder.state_dict())
    originals = [layer.self_attn for layer in encoder.layers]
    convert_(encoder, layers=layers, rank=4, weights="tied")
    assert not torch.equal(encoder(X), before)
    revert_(encoder)
    assert torch.equal(encoder(X), before)
    assert list(encoder.state_dict()) == keys
    assert [layer.self_attn for layer in encoder.layers] == originals


def test_training_the_copy_leaves_the_original(encoder):
    before = encoder(X)
    convert_(encoder, rank=4)
    for layer in converted_layers(encoder):
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.add_(1.0)
    assert torch.equal(revert_(encoder)(X), before)


def test_the_original_follows_type_and_mode(encoder):
    convert_(encoder, rank=4)
    encoder.float().train()
    revert_(encoder)
    assert {p.dtype for p in encoder.parameters()} == {torch.float32}
    assert encoder.layers[-1].self_attn.training


def test_parts_of_another_type_stay_so(encoder):
    """A model in half precision may keep a part in float32."""
    encoder.layers[2].self_attn.out_proj.double()
    encoder.layers[2].self_attn.in_proj_bias.data = encoder.layers[2].self_attn.in_proj_bias.float()
    convert_(encoder, rank=4)
    revert_(encoder)
    assert encoder.layers[2].self_attn.in_proj_bias.dtype == torch.float32


def test_a_converted_model_inside_another(encoder):
    before = encoder(X)
    model = nn.Sequential(nn.Identity(), convert_(encoder, rank=4))
    with pytest.raises(ValueError, match=r"1.layers.2.self_attn is converted already"):
        convert_(model, rank=4)
    assert torch.equal(revert_(model)(X), before)


def test_the_original_is_no_part_of_the_model(encoder):
    old = encoder.layers[-1].self_attn
    convert_(encoder, rank=4)
    assert all(p is not q for p in encoder.parameters() for q in old.parameters())
    assert not any("original" in name for name in encoder.state_dict())
    twin = copy.deepcopy(encoder)
    assert torch.equal(twin(X), encoder(X))
    revert_(twin)
    assert len(converted_layers(encoder)) == 1


@pytest.mark.parametrize("broken", ["build", "put"])
def test_a_failure_half_way_leaves_the_model_untouched(encoder, monkeypatch, broken):
    modules, before = list(encoder.modules()), encoder(X)
    calls = []

    def fail(*args, **kwargs):
        calls.append(args)
        if len(calls) == 2:
            raise RuntimeError("half-way")
        return work(*args, **kwargs)

    name = {"build": "build_core", "put": "put"}[broken]
    work = getattr(apply, name)
    monkeypatch.setattr(apply, name, fail)
    with pytest.raises(RuntimeError, match="half-way"):
        convert_(encoder, layers="all", rank=4)
    assert list(encoder.modules()) == modules
    assert torch.equal(encoder(X), before)


def test_shared_modules_stay_shared():
    shared = nn.TransformerEncoderLayer(16, 2, 24, batch_first=True).double()
    model = nn.Sequential(shared, shared)
    convert_(model, rank=4)
    assert model[0].self_attn is model[1].self_attn
    assert len(converted_layers(model)) == 1
    attention = nn.MultiheadAttention(16, 2)
    model = nn.ModuleDict({"a": attention, "b": attention})
    convert_(model, layers="^b", rank=4)
    assert model["a"] is model["b"]
    revert_(model)
    assert model["a"] is attention
    assert model["b"] is attention


def test_tied_weights_are_copied(encoder):
    first, last = encoder.layers[0].self_attn, encoder.layers[2].self_attn
    first.in_proj_weight = last.in_proj_weight
    convert_(encoder, rank=4)
    assert encoder.layers[2].self_attn.in_proj_weight is not first.in_proj_weight
    assert torch.equal(encoder.layers[2].self_attn.in_proj_weight, first.in_proj_weight[:32])


def test_quantised_layers_are_refused(encoder):
    encoder.layers[2].self_attn.out_proj = torch.ao.nn.quantized.dynamic.Linear(16, 16)
    with pytest.raises(ValueError, match=r"layers.2.self_attn cannot be converted: .*dequantise"):
        plan(encoder)
    convert_(encoder, layers=0, rank=4)  # the others can be


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kdim": 8}, "another width"),
        ({"add_bias_kv": True}, "adds a bias or zero"),
        ({"add_zero_attn": True}, "adds a bias or zero"),
    ],
)
def test_attentions_that_cannot_be_expressed(options, message):
    model = nn.Sequential(nn.MultiheadAttention(16, 2, **options))
    with pytest.raises(ValueError, match=f"^0 cannot be converted: .*{message}"):
        convert_(model, rank=4)


def test_converting_twice_is_an_error(encoder):
    convert_(encoder, rank=4)
    with pytest.raises(ValueError, match=r"layers.2.self_attn is converted already"):
        convert_(encoder, rank=4)
    convert_(encoder, layers=0, rank=4)  # another layer is fine
    assert len(converted_layers(encoder)) == 2
    revert_(encoder)
    with pytest.raises(ValueError, match="no converted layer"):
        revert_(encoder)


@pytest.mark.parametrize(
    "name", ["DistributedDataParallel", "FullyShardedDataParallel", "OptimizedModule"]
)
def test_distributed_wrappers(encoder, name):
    wrapped = type(name, (nn.Sequential,), {})(encoder)
    with pytest.raises(ValueError, match=f"wrapped in {name}.*convert first, then wrap"):
        convert_(nn.Sequential(wrapped), rank=4)


def test_parallel_wrappers(encoder):
    with pytest.raises(ValueError, match="wrapped in DataParallel"):
        convert_(nn.DataParallel(encoder), rank=4)
    convert_(encoder, rank=4)
    with pytest.raises(ValueError, match="wrapped in DataParallel"):
        revert_(nn.DataParallel(encoder))


def test_options_in_a_mapping(encoder):
    assert convert_(encoder, {"layers": 0, "rank": 3}) is encoder
    assert encoder.layers[0].self_attn.primal.rank == 3


# -- optimizers ------------------------------------------------------------------------------------


def train(model, optimizer):
    model.train()
    loss = model(X).square().mean() + 0.1 * pa.ksvd_loss(model)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def test_an_optimizer_from_before_is_detected(encoder):
    early = torch.optim.SGD(encoder.parameters(), lr=0.1)
    convert_(encoder, rank=4)
    with pytest.raises(ValueError, match="still holds 4 parameters"):
        train(encoder, early)
    with pytest.raises(ValueError, match="still holds 4 parameters"):
        check_optimizer(encoder, early)
    late = torch.optim.SGD(encoder.parameters(), lr=0.1)
    check_optimizer(encoder, late)
    train(encoder, late)
    revert_(encoder)
    with pytest.raises(ValueError, match="still holds"):
        late.step()
    early.step()  # right again


def test_an_optimizer_without_the_new_parameters(encoder):
    convert_(encoder, rank=4)
    some = torch.optim.SGD(encoder.layers[0].parameters(), lr=0.1)
    with pytest.raises(ValueError, match=r"no primal.in_proj_weight of layers.2.self_attn"):
        check_optimizer(encoder, some)


def test_optimizers_of_other_models_are_left_alone(encoder):
    convert_(encoder, rank=4)
    other = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    other(torch.ones(2)).sum().backward()
    optimizer.step()


def test_an_optimizer_of_parameters_that_were_tied(encoder):
    """The tie ends, but the parameter stays in the model, at its other place."""
    first, last = encoder.layers[0].self_attn, encoder.layers[2].self_attn
    first.in_proj_weight = last.in_proj_weight
    early = torch.optim.SGD(encoder.parameters(), lr=0.1)
    convert_(encoder, rank=4)
    train(encoder, torch.optim.SGD(encoder.parameters(), lr=0.1))
    with pytest.raises(ValueError, match="still holds 3 parameters"):
        early.step()
    convert_(encoder, layers=0, rank=4)  # now it leaves
    with pytest.raises(ValueError, match="still holds 7 parameters"):
        early.step()


def test_a_converted_parameter_that_is_tied_stays_on_reverting(encoder):
    convert_(encoder, rank=4)
    encoder.layers[0].norm1.bias = encoder.layers[2].self_attn.primal.out_proj.bias
    revert_(encoder)
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
    encoder(X).square().mean().backward()
    optimizer.step()
