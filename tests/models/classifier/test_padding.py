"""The promise: a sequence gives the same logits alone and padded in a batch, in every model."""

import pytest
import torch
from torch.testing import assert_close

import primal_attention as pa

TOLERANCES = {
    torch.float64: {"rtol": 1e-12, "atol": 1e-12},
    torch.float32: {"rtol": 1e-5, "atol": 1e-5},
}


@pytest.fixture(params=["mean", "flatten"])
def head(request):
    return request.param


def alone(model, inputs, padding):
    """Logits of every sample by itself, without padding; of none at all as one padded position."""
    rows = []
    for sample, ignore in zip(inputs, padding, strict=True):
        sequence = sample[~ignore].unsqueeze(0)
        if sequence.shape[1]:
            rows.append(model(sequence))
        else:
            rows.append(model(sample[:1].unsqueeze(0), torch.ones(1, 1, dtype=torch.bool)))
    return torch.cat(rows)


@pytest.mark.parametrize("dtype", TOLERANCES)
@torch.no_grad()
def test_alone_and_padded(attention, head, dtype, make_model, make_batch):
    model = make_model(**attention, head=head, dtype=dtype).eval()
    inputs, padding = make_batch(dtype=dtype)
    expected = alone(model, inputs, padding)
    inputs[padding] = torch.nan
    logits = model(inputs, padding)
    assert logits.isfinite().all()
    assert_close(logits, expected, **TOLERANCES[dtype])


@pytest.mark.parametrize("tokens", [False, True], ids=["series", "tokens"])
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "none"])
@torch.no_grad()
def test_every_model(tokens, norm, positions, head, make_model, make_batch):
    model = make_model(tokens=tokens, norm=norm, positions=positions, head=head).eval()
    inputs, padding = make_batch(tokens=tokens)
    expected = alone(model, inputs, padding)
    inputs[padding] = -7 if tokens else torch.inf  # no token at all, no number
    assert_close(model(inputs, padding), expected, **TOLERANCES[torch.float64])


@torch.no_grad()
def test_padding_anywhere(attention, head, make_model, make_batch):
    """Only the valid positions and their order count."""
    model = make_model(**attention, head=head).eval()
    inputs, padding = make_batch()
    generator = torch.Generator().manual_seed(3)
    padding = torch.stack([row[torch.randperm(len(row), generator=generator)] for row in padding])
    expected = alone(model, inputs, padding)
    inputs[padding] = torch.nan
    assert_close(model(inputs, padding), expected, **TOLERANCES[torch.float64])


@torch.no_grad()
def test_more_padding_than_max_length(head, make_model, make_batch):
    """It is the valid positions that must not be more than max_length."""
    model = make_model(head=head).eval()
    inputs, padding = make_batch(length=20)
    assert_close(model(inputs, padding), model(inputs[:, :9], padding[:, :9]))


@torch.no_grad()
def test_nothing_but_padding(head, make_model, make_batch):
    model = make_model(head=head).eval()
    inputs, padding = make_batch(lengths=(0, 0))
    logits = model(inputs, padding)
    assert_close(logits, model.head.output.bias.expand(2, -1))


def gradients(model, inputs, padding):
    """Of the task and the KSVD loss together."""
    model.zero_grad()
    logits = model(inputs, padding)
    loss = logits.square().sum()
    if any(isinstance(m, pa.PrimalAttention) for m in model.modules()):
        loss = loss + pa.ksvd_loss(model)
    loss.backward()
    return {name: p.grad for name, p in model.named_parameters()}


def test_gradients_of_the_packed_and_the_padded_form(
    attention, head, make_model, make_batch, padded
):
    model = make_model(**attention, head=head, dropout=0.0)
    inputs, padding = make_batch()
    inputs[padding] = torch.nan
    packed = gradients(model, inputs, padding)
    padded()
    expected = gradients(model, inputs, padding)
    assert all(g is not None and g.isfinite().all() for g in packed.values())
    # biases of keys have no gradient under softmax: what is there is rounding
    assert_close(packed, expected, rtol=1e-10, atol=1e-11)


def test_gradient_of_the_inputs(make_model, make_batch):
    model = make_model(dropout=0.0)
    inputs, padding = make_batch()
    inputs.requires_grad_()
    model(inputs, padding).square().sum().backward()
    assert not inputs.grad[padding].any()
    assert inputs.grad[~padding].abs().amax(-1).min() > 0


def test_all_false_is_no_padding(make_model, make_batch):
    model = make_model().eval()
    inputs, padding = make_batch(lengths=(9, 9))
    assert torch.equal(model(inputs, padding), model(inputs))
