"""SeriesNet: padding changes nothing, and it learns."""

import pytest
import torch
from torch.testing import assert_close

from primal_attention.models.series_net import CHANNELS, TOKENS, SeriesNet


def net(max_length=200, attention=("primal", "softmax"), dtype=torch.float64, **changes):
    torch.manual_seed(0)
    settings = {"classes": 3, "channels": 2, "width": 16, "heads": 2, "feedforward": 16}
    model = SeriesNet(
        max_length=max_length, attention=attention, dtype=dtype, **(settings | changes)
    )
    for module in model.modules():  # statistics that are not those of the start
        if isinstance(module, torch.nn.BatchNorm1d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2.0)
    return model.eval()


def batch(lengths, longest=None, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    longest = max(lengths) if longest is None else longest
    inputs = torch.randn(len(lengths), longest, 2, generator=generator, dtype=dtype)
    padding = torch.arange(longest) >= torch.tensor(lengths)[:, None]
    return inputs, padding


@pytest.mark.parametrize(
    "attention", [("primal", "softmax"), ("none",), ("linear", "flow")], ids="+".join
)
@pytest.mark.parametrize(
    ("max_length", "lengths"),
    [(200, [200, 133, 64, 5, 1]), (50, [50, 37, 1]), (900, [900, 401, 2])],
)
@torch.no_grad()
def test_alone_and_padded(attention, max_length, lengths):
    model = net(max_length, attention)
    inputs, padding = batch(lengths)
    alone = torch.cat([model(x[None, :n]) for x, n in zip(inputs, lengths, strict=True)])
    inputs[padding] = torch.nan
    assert_close(model(inputs, padding), alone, rtol=1e-10, atol=1e-10)
    # and with the padding in front
    front = torch.full_like(inputs, torch.nan)
    for x, given, n in zip(front, inputs, lengths, strict=True):
        x[len(x) - n :] = given[:n]
    assert_close(model(front, padding.flip(1)), alone, rtol=1e-10, atol=1e-10)


def test_training_sees_no_padding():
    """The statistics of the batch norm, and so the gradients, are those of the valid positions."""
    inputs, padding = batch([90, 41, 13])
    wide, more = batch([90, 41, 13], longest=150)
    wide[:, :90] = inputs
    found = []
    for x, ignore in ((inputs, padding), (wide, more)):
        model = net(dropout=0.0).train()
        model(x, ignore).square().sum().backward()
        found.append([p.grad for p in model.parameters()] + [model.stem_norm.running_mean])
    for first, second in zip(*found, strict=True):
        assert_close(first, second, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(
    ("max_length", "thinning", "factor", "tokens"),
    [(1, 1, 1, 1), (64, 1, 1, 64), (65, 1, 2, 33), (400, 1, 7, 58), (2000, 5, 7, 58)],
)
def test_at_most_so_many_tokens(max_length, thinning, factor, tokens):
    model = net(max_length)
    assert (model.thinning, model.factor) == (thinning, factor)
    assert len(model.positions.table) == tokens <= TOKENS
    inputs, _ = batch([max_length] * 2)
    assert model(inputs).shape == (2, 3)


def test_many_channels_are_mixed_first():
    model = net(channels=300)
    assert model.stem[0].in_channels == CHANNELS
    inputs = torch.randn(2, 30, 300, dtype=torch.float64)
    assert model.embed(inputs).shape == (2, 16)
    assert_close(model(inputs), model.output(model.embed(inputs)))


def test_it_learns():
    time = torch.arange(100.0)
    labels = torch.arange(32) % 2
    phase = 6 * torch.rand(32, 1, generator=torch.Generator().manual_seed(0))
    inputs = torch.sin(time * torch.where(labels == 0, 0.2, 0.5)[:, None] + phase)[..., None]
    model = net(100, dtype=torch.float32, channels=1, classes=2, dropout=0.0).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(30):
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert (model.eval()(inputs).argmax(1) == labels).all()


@pytest.mark.parametrize(
    ("shape", "padding", "message"),
    [
        ((2, 5, 3), None, r"inputs is \(2, 5, 3\); expected .*channels = 2"),
        ((2, 0, 2), None, "at least one position"),
        ((2, 300, 2), None, "a series has length 300; expected at most max_length = 200"),
        ((2, 5, 2), torch.zeros(2, 4, dtype=torch.bool), r"padding is \(2, 4\)"),
        ((2, 5, 2), torch.zeros(2, 5), "expected .*torch.bool"),
    ],
)
def test_wrong_inputs(shape, padding, message):
    with pytest.raises(ValueError, match=message):
        net()(torch.zeros(shape, dtype=torch.float64), padding)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attention": "primal"}, "expected one name per layer"),
        ({"width": 2}, "width is 2; expected at least 3"),
        ({"classes": 0}, "classes"),
    ],
)
def test_wrong_settings(changes, message):
    with pytest.raises(ValueError, match=message):
        net(**changes)


def test_a_batch_of_a_single_position_is_trained_on():
    model = net(1, dropout=0.0)
    inputs, padding = batch([1])
    expected = model(inputs, padding)
    model.train()
    assert_close(model(inputs, padding), expected)  # by the statistics of the steps before
    assert all(module.training for module in model.modules())
    model(inputs, padding).sum().backward()
    assert torch.isfinite(model.stem[0].weight.grad).all()
