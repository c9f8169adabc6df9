"""Compiled and exported models compute what the eager ones do, with padding and without."""

import pytest
import torch
from torch.export import Dim
from torch.testing import assert_close

import primal_attention as pa

CLOSE = {"rtol": 1e-9, "atol": 1e-11}
SLOW_MEAN = [pytest.param("mean", marks=pytest.mark.slow), "flatten"]


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def gradients(forward, model, *args):
    model.zero_grad()
    loss = forward(*args).square().sum() + pa.ksvd_loss(model)
    loss.backward()
    return [p.grad.clone() for p in model.parameters()]


@pytest.mark.slow
@pytest.mark.parametrize("head", SLOW_MEAN)
def test_compiled_training(head, make_model, make_batch):
    model = make_model(head=head, dropout=0.0, attention=("primal",))
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    for args in (make_batch(), make_batch(seed=2)[:1]):
        expected = gradients(model, model, *args)
        assert_close(gradients(compiled, model, *args), expected, **CLOSE)


@pytest.mark.slow
def test_compiled_dropout(make_model, make_batch):
    model = make_model(dropout=0.5, attention=("softmax",), norm="pre")
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    args = make_batch()
    assert not torch.equal(compiled(*args), compiled(*args))
    model.eval()
    assert_close(compiled(*args), model(*args), **CLOSE)


@pytest.mark.slow
@pytest.mark.parametrize("head", ["mean", "flatten"])
def test_inductor(head, make_model, make_batch):
    model = make_model(head=head, dropout=0.0)
    compiled = torch.compile(model, fullgraph=True)
    args = make_batch()
    assert_close(gradients(compiled, model, *args), gradients(model, model, *args), **CLOSE)


@pytest.mark.slow
@pytest.mark.parametrize("head", SLOW_MEAN)
@pytest.mark.parametrize(
    "masked", [pytest.param(False, marks=pytest.mark.slow), True], ids=["whole", "padded"]
)
def test_export(head, masked, make_model, make_batch):
    model = make_model(head=head, attention=("primal",)).eval()
    dynamic = {0: Dim("batch"), 1: Dim("length", max=9)}
    args = make_batch()[: 1 + masked]
    program = torch.export.export(model, args, dynamic_shapes=(dynamic,) * len(args)).module()
    for lengths in [(9, 4, 1, 7, 0), (3, 5), (2, 1, 1)]:
        args = make_batch(lengths=lengths, length=max(lengths))[: 1 + masked]
        assert_close(program(*args), model(*args), **CLOSE)


@pytest.mark.slow
def test_export_of_tokens(make_model, make_batch):
    model = make_model(tokens=True).eval()
    dynamic = {0: Dim("batch"), 1: Dim("length", max=9)}
    example = make_batch(tokens=True)
    program = torch.export.export(model, example, dynamic_shapes=(dynamic, dynamic)).module()
    args = make_batch(tokens=True, lengths=(2, 6), length=6)
    assert_close(program(*args), model(*args), **CLOSE)


def test_function_transforms(make_model, make_batch):
    model = make_model(attention=("primal",), dropout=0.0).eval()
    inputs, padding = make_batch(lengths=(9, 4, 7))
    state = dict(model.named_parameters())

    def logits_of(inputs, padding):
        args = (inputs.unsqueeze(0), padding.unsqueeze(0))
        return torch.func.functional_call(model, state, args).squeeze(0)

    found = torch.func.vmap(logits_of)(inputs, padding)
    assert_close(found, model(inputs, padding), **CLOSE)
