"""Distillation of converted layers against their originals."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from primal_attention import ksvd_residuals
from primal_attention.convert import (
    convert_,
    converted_layers,
    distill,
    distill_,
    init_ksvd_,
    load,
    revert_,
    save,
)


@pytest.fixture
def x():
    torch.manual_seed(0)
    return torch.randn(4, 12, 16, dtype=torch.float64)


@pytest.mark.parametrize("weights", ["data", "free", "tied"])
def test_it_comes_closer(encoder, x, weights):
    convert_(encoder, layers="all", rank=8, weights=weights)
    fixed = [p.detach().clone() for p in encoder.layers[0].linear1.parameters()]
    before = encoder(x)
    rows = distill_(encoder, [x[:2], (x[2:],)], steps=25)
    assert [row.name for row in rows] == [f"layers.{i}.self_attn" for i in range(3)]
    assert all(row.after < 0.8 * row.before for row in rows)
    assert not torch.equal(encoder(x), before)
    now = encoder.layers[0].linear1.parameters()
    assert all(torch.equal(p, q) for p, q in zip(now, fixed, strict=True))
    assert all(p.grad is None or not p.grad.any() for p in encoder.parameters())


@pytest.mark.parametrize("lr", [100.0, 1e200])
def test_what_gets_worse_is_taken_back(encoder, x, lr):
    convert_(encoder, layers="all", rank=4)
    before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    rows = distill_(encoder, [x], steps=3, lr=lr)
    assert all(row.after == row.before for row in rows)
    for name, tensor in encoder.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_errors_are_those_of_the_layers_alone(encoder, x):
    """Each layer is compared on the input that it had before the conversion."""
    seen = []
    hook = encoder.layers[2].self_attn.register_forward_hook(
        lambda m, args, kwargs, out: seen.append((args[0], out[0])), with_kwargs=True
    )
    encoder(x)
    hook.remove()
    ((inputs, target),) = seen
    convert_(encoder, layers=slice(1, 3), rank=4, weights="tied")
    row = distill_(encoder, [x], steps=0)[-1]
    out, _ = encoder.layers[2].self_attn(inputs)
    flat, goal = out.flatten(0, 1), target.flatten(0, 1)
    error = (flat - goal).square().mean() / (goal - goal.mean(0)).square().mean()
    assert row.before == row.after == pytest.approx(error.item())


@pytest.mark.parametrize("batch_first", [False, True])
def test_padding_does_not_count(x, batch_first):
    layer = nn.TransformerEncoderLayer(16, 2, 24, batch_first=batch_first)
    model = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).double()
    ignore = torch.arange(12) >= torch.tensor([[12], [7], [12], [3]])
    convert_(model, rank=4, weights="tied")

    def errors(x):
        x = x if batch_first else x.transpose(0, 1)
        return distill_(model, [{"src": x, "src_key_padding_mask": ignore}], steps=0)[0].before

    noise = torch.where(ignore.unsqueeze(-1), 5.0, x)
    assert errors(noise) == pytest.approx(errors(x))


def test_the_model_is_left_as_it_was(encoder, x):
    encoder.train()
    encoder.layers[0].eval()
    before = revert_(convert_(encoder, rank=4)).layers[2].self_attn
    convert_(encoder, rank=4)
    modes = [m.training for m in encoder.modules()]
    fast = torch.backends.mha.get_fastpath_enabled()
    distill_(encoder, [x], steps=2)
    assert [m.training for m in encoder.modules()] == modes
    assert torch.backends.mha.get_fastpath_enabled() == fast
    assert "forward" not in converted_layers(encoder)[0].__dict__
    assert revert_(encoder).layers[2].self_attn is before


@pytest.mark.parametrize("learn", [distill_, init_ksvd_])
def test_originals_follow_the_model_to_another_type(encoder, x, learn):
    convert_(encoder.float(), rank=4).double()
    learn(encoder, *(([x],) if learn is distill_ else (x,)))
    assert revert_(encoder)(x).dtype == torch.float64


@pytest.mark.parametrize("weights", ["data", "free"])
def test_ksvd_start(encoder, x, weights):
    """J = 0 on the sequence that the layer saw (on all of them together for free weights)."""
    convert_(encoder, layers="all", rank=4, weights=weights)
    init_ksvd_(encoder, x)
    layer = encoder.layers[0].self_attn.primal
    rows = x[:1] if weights == "data" else x.flatten(0, 1)[None]
    objective = layer.ksvd_problem(rows).objective(positions="mean").mean()
    assert_close(objective.abs(), torch.zeros_like(objective), rtol=0, atol=1e-8)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("weights", ["data", "free"])
def test_ksvd_start_of_cross_attention(x, weights, batch_first):
    """The kernel is that between the sequence and its context, of another length and padded."""
    layer = nn.TransformerDecoderLayer(16, 2, 24, batch_first=batch_first)
    model = nn.TransformerDecoder(layer, 1).double()
    memory = torch.randn(4, 9, 16, dtype=torch.float64)
    ignore = torch.arange(9) >= torch.tensor([[6], [9], [7], [8]])
    convert_(model, layers="multihead_attn", cross=True, rank=4, weights=weights)
    seen = []
    hook = model.layers[0].norm1.register_forward_hook(lambda m, args, out: seen.append(out))
    sides = (x, memory) if batch_first else (x.transpose(0, 1), memory.transpose(0, 1))
    init_ksvd_(model, {"tgt": sides[0], "memory": sides[1], "memory_key_padding_mask": ignore})
    hook.remove()
    asks, asked = (seen[0] if batch_first else seen[0].transpose(0, 1)), memory
    if weights == "free":
        asks, asked = asks.flatten(0, 1), memory[~ignore]
    else:
        asks, asked = asks[0], memory[0, :6]
    primal = model.layers[0].multihead_attn.primal
    assert ksvd_residuals(primal, asks, asked).solved(1e-9).all()


def test_refusals(encoder, x, tmp_path):
    with pytest.raises(ValueError, match="no converted layer"):
        distill_(encoder, [x])
    convert_(encoder, rank=9, weights="data")
    with pytest.raises(ValueError, match="batches is empty"):
        distill_(encoder, [])
    with pytest.raises(ValueError, match="steps is -1"):
        distill_(encoder, [x], steps=-1)
    with pytest.raises(ValueError, match=r"^layers.2.self_attn: .*rank <= head_dim"):
        init_ksvd_(encoder, x)

    class Skips(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner(x) if x.mean() > 100 else x

    with pytest.raises(ValueError, match="not reached by this batch"):
        distill_(Skips(encoder), [x])
    save(encoder, tmp_path)
    fresh = load(tmp_path, base=revert_(encoder))
    converted_layers(fresh)[0].conversion.original = None
    with pytest.raises(ValueError, match="loaded without its base"):
        distill_(fresh, [x])


def test_small_errors_are_told(encoder, x, monkeypatch):
    convert_(encoder, rank=4)
    monkeypatch.setattr(distill, "_error", lambda *_: 3.6e-6)
    told = []
    distill_(encoder, [x], steps=0, tell=lambda *said: told.append(said[-1]))
    assert told
    assert all(text.endswith(": 3.6e-06 -> 3.6e-06") for text in told)
