"""The objective of compiled models: the same as in eager mode, and no state in the graphs."""

import gc
import warnings
import weakref

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

import primal_attention as pa

from .conftest import KINDS

CLOSE = {"rtol": 1e-9, "atol": 1e-11}


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def step(gradients):
    """One training step on some documents: the KSVD loss and all gradients."""

    def run(forward, model, *documents, eta=1.0):
        outputs = [forward(x).square().mean() for x in documents]
        loss = pa.ksvd_loss(model)
        (sum(outputs) + eta * loss).backward()
        return loss.detach(), gradients(model)

    return run


def check_training(model, backend, step, held, randn, other=(3, 6, 8)):
    x, y = randn(2, 5, 8), randn(*other)
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    for documents in [(x, y), (x,)]:
        expected = step(model, model, *documents)
        assert_close(step(compiled, model, *documents), expected, **CLOSE)
        assert [held(layer) for layer in model.layers] == [0] * len(model.layers)


@pytest.mark.parametrize(
    "name", ["data", pytest.param("free", marks=pytest.mark.slow), "causal tied"]
)
def test_training_step(name, make_encoder, step, held, randn):
    """Of two documents of one shape: others are compiled again, which the next test does."""
    model = make_encoder(KINDS[name], depth=1)
    check_training(model, "eager", step, held, randn, other=(2, 5, 8))


@pytest.mark.slow
def test_training_step_with_documents_of_two_shapes(make_encoder, step, held, randn):
    kind = {"weights": "data", "anchors": 4}
    check_training(make_encoder(kind, depth=1), "eager", step, held, randn)


@pytest.mark.slow
def test_training_step_through_aot_autograd(make_encoder, step, held, randn):
    kind = {"weights": "data", "anchors": 4}
    check_training(make_encoder(kind, depth=1), "aot_eager", step, held, randn, other=(2, 5, 8))


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_training_step_of_every_kind(kind, backend, make_encoder, step, held, randn):
    check_training(make_encoder(kind, depth=1), backend, step, held, randn)


@pytest.mark.slow
def test_the_loss_finds_the_layers_of_the_compiled_model(make_encoder, randn):
    model, x = make_encoder({"weights": "free"}, depth=1), randn(2, 5, 8)
    model(x)
    expected = pa.ksvd_loss(model)
    model.layers[0].ledger.release()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    compiled(x)
    assert_close(pa.ksvd_loss(compiled), expected, **CLOSE)
    assert torch.equal(pa.ksvd_loss(compiled), pa.ksvd_loss(model))


@pytest.mark.slow
def test_the_loss_inside_the_compiled_function(make_encoder, gradients, held, randn):
    model, x = make_encoder({"weights": "tied"}), randn(2, 5, 8)

    def loss_of(x):
        return model(x).square().mean() + pa.ksvd_loss(model) + pa.ksvd_loss(model, "sum")

    expected = loss_of(x)
    expected.backward()
    wanted = gradients(model)
    counter = CompileCounterWithBackend("eager")
    compiled = torch.compile(loss_of, backend=counter, fullgraph=True)
    for _ in range(3):
        loss = compiled(x)
        assert_close(loss, expected, **CLOSE)
        outside = pa.ksvd_loss(model)  # may be asked again, e.g. for a log
        assert_close(3 * outside + model.eval()(x).square().mean(), loss, **CLOSE)
        model.train()
        loss.backward()
        assert_close(gradients(model), wanted, **CLOSE)
        assert [held(layer) for layer in model.layers] == [0, 0]
    compiled(x)  # a step that is dropped
    assert_close(compiled(x), expected, **CLOSE)
    assert counter.frame_count == 1


@pytest.mark.parametrize("backend", ["eager", pytest.param("aot_eager", marks=pytest.mark.slow)])
def test_the_output_may_be_changed_in_place(backend, make_layer, gradients, randn):
    layer, x = make_layer({"weights": "free"}), randn(2, 5, 8)
    compiled = torch.compile(layer, backend=backend, fullgraph=True)
    found = []
    for forward, change in ((layer, torch.add), (compiled, torch.Tensor.add_)):
        out, _ = forward(x)
        (change(out, x).square().mean() + pa.ksvd_loss(layer)).backward()
        found.append(gradients(layer))
    assert_close(found[1], found[0], **CLOSE)


@pytest.mark.slow
def test_reading_twice_and_dropping_a_step(make_layer, by_hand, randn):
    layer, x, y = make_layer({"weights": "free"}), randn(1, 5, 8), randn(1, 5, 8)
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    compiled(x)
    assert torch.equal(pa.ksvd_loss(layer), pa.ksvd_loss(layer))
    compiled(y)  # the loss of x was read: it does not count any more
    assert_close(pa.ksvd_loss(layer), by_hand(layer, y[0]) ** 2, **CLOSE)


@pytest.mark.slow
def test_a_dropped_loss_is_forgotten_at_the_next_forward(make_layer, held, randn):
    layer, x = make_layer({"weights": "free"}), randn(1, 5, 8).requires_grad_()
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    saved = x.exp()
    reference = weakref.ref(saved)
    compiled(saved.sin())
    del saved
    pa.ksvd_loss(layer)
    compiled(x.exp().sin())
    gc.collect()
    assert reference() is None
    assert held(layer) == 1


@pytest.mark.slow
def test_a_model_made_on_the_meta_device(make_layer, by_hand, randn):
    real, x = make_layer({"weights": "tied"}), randn(1, 5, 8)
    with torch.device("meta"):
        layer = make_layer({"weights": "tied"})
    layer.to_empty(device="cpu").load_state_dict(real.state_dict())
    out, _ = torch.compile(layer, backend="eager", fullgraph=True)(x)
    loss = pa.ksvd_loss(layer)
    assert_close(loss, by_hand(layer, x[0]) ** 2, **CLOSE)
    (out.sum() + loss).backward()
    with pytest.raises(RuntimeError, match="no forward pass"):
        pa.ksvd_loss(layer)


@pytest.mark.slow
def test_one_layer_called_twice_in_one_graph(make_layer, by_hand, randn):
    layer, x = make_layer({"weights": "tied"}), randn(1, 5, 8)

    def twice(x):
        return layer(layer(x)[0])[0]

    compiled = torch.compile(twice, backend="eager", fullgraph=True)
    rows = [x[0], layer.eval()(x)[0][0]]
    layer.train()
    expected = torch.stack([by_hand(layer, row) ** 2 for row in rows]).mean()
    for _ in range(3):  # six entries in the end, of two different inputs
        compiled(x)
    assert_close(pa.ksvd_loss(layer), expected, **CLOSE)


@pytest.mark.slow
def test_forwards_without_gradients(make_layer, by_hand, randn):
    layer, x = make_layer({"weights": "free"}), randn(1, 5, 8)
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    with torch.no_grad():
        compiled(x)
        assert_close(pa.ksvd_loss(layer), by_hand(layer, x[0]) ** 2, **CLOSE)
        compiled(x)
    with pytest.raises(RuntimeError, match="ran without gradients"):
        pa.ksvd_loss(layer)


@pytest.mark.slow
def test_no_compilation_depends_on_what_is_remembered(make_encoder, held, randn):
    model, x = make_encoder({"weights": "free"}, depth=1), randn(2, 5, 8)
    counter = CompileCounterWithBackend("eager")
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    for _ in range(12):  # eta = 0: nobody asks for the loss
        compiled(x).sum().backward()
        assert held(model.layers[0]) == 0
    for count in range(1, 13):  # no backward either
        compiled(x)
        assert held(model.layers[0]) == count
    pa.ksvd_loss(model)
    compiled(x)
    pa.ksvd_loss(model).backward()
    assert counter.frame_count == 1
    with torch.no_grad():
        for _ in range(12):
            compiled(x)
    assert counter.frame_count == 2  # one more for the other gradient mode


def test_forwards_without_backward_are_bounded(make_layer, held, randn):
    layer, x = make_layer({"weights": "free"}), randn(1, 3, 8)
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for _ in range(32):
            compiled(x)
    compiled(x)
    for _ in range(4):
        with pytest.warns(UserWarning, match="32 training forwards"):
            compiled(x)
    assert held(layer) == 33  # the last one waits in its slot


@pytest.mark.parametrize("backend", ["eager", pytest.param("aot_eager", marks=pytest.mark.slow)])
def test_nothing_is_kept_after_backward(backend, make_layer, held, randn):
    layer = make_layer({"weights": "free"})
    compiled = torch.compile(layer, backend=backend, fullgraph=True)
    for eta in (0.0, 1.0):
        saved = randn(2, 5, 8).requires_grad_().exp()
        reference = weakref.ref(saved)
        out, _ = compiled(saved.sin())
        del saved
        loss = out.sum()
        if eta:
            loss = loss + eta * pa.ksvd_loss(layer)
        gc.collect()
        assert reference() is not None
        loss.backward()
        del out, loss
        gc.collect()
        assert held(layer) == 0
        assert reference() is None


@pytest.mark.slow
def test_layers_compiled_one_by_one_share_a_graph(make_encoder, step, randn):
    model, x = make_encoder({"weights": "free"}, depth=4), randn(2, 5, 8).requires_grad_()
    expected = step(model, model, x)
    counter = CompileCounterWithBackend("eager")
    for layer in model.layers:
        layer.compile(backend=counter, fullgraph=True)
    for _ in range(2):
        assert_close(step(model, model, x), expected, **CLOSE)
    assert counter.frame_count == 1


@pytest.mark.slow
def test_two_compiled_models_do_not_interfere(make_encoder, step, randn):
    models = [make_encoder({"weights": "tied"}, depth=1) for _ in range(2)]
    x, y = randn(2, 5, 8), randn(2, 5, 8)
    expected = step(models[0], models[0], x)
    compiled = [torch.compile(model, backend="eager", fullgraph=True) for model in models]
    out = compiled[0](x).square().mean()
    step(compiled[1], models[1], y)
    loss = pa.ksvd_loss(models[0])
    (out + loss).backward()
    found = loss.detach(), {name: p.grad for name, p in models[0].named_parameters()}
    assert_close(found, expected, **CLOSE)


@pytest.mark.parametrize("compiled_inside", [pytest.param(True, marks=pytest.mark.slow), False])
def test_with_checkpointing(compiled_inside, make_layer, step, held, randn):
    layer, x = make_layer({"weights": "tied"}), randn(2, 5, 8)
    expected = step(lambda x: layer(x)[0], layer, x)

    def plain(x):
        return layer(x)[0]

    def checkpointed(x):
        return checkpoint(inner, x, use_reentrant=False)

    inner, forward = plain, checkpointed
    if compiled_inside:
        inner = torch.compile(plain, backend="aot_eager", fullgraph=True)
    else:  # torch breaks the graph at a checkpoint whose forward has a side effect
        forward = torch.compile(checkpointed, backend="aot_eager")
    for _ in range(2):
        assert_close(step(forward, layer, x), expected, **CLOSE)
        assert held(layer) == 0


@pytest.mark.slow
def test_dropout_trains_compiled(randn):
    torch.manual_seed(0)
    layer = pa.PrimalAttention(8, 2, rank=2, weights="free", dropout=0.3, dtype=torch.float64)
    model = nn.Sequential(layer)
    x = randn(2, 5, 8)
    layer(x)
    expected = pa.ksvd_loss(model)
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    out, _ = compiled(x)
    found = pa.ksvd_loss(model)
    assert_close(found, expected, **CLOSE)  # J has no dropout
    (out.sum() + found).backward()
    assert layer.w_e.grad.isfinite().all()
