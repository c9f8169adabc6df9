import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch.testing import assert_close


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def check_inference(model, compiled, x, mask):
    with torch.no_grad():
        assert_close(compiled(x, mask), model(x, mask))


def check_gradient(model, compiled, x, mask):
    ours, theirs = (x.clone().requires_grad_() for _ in range(2))
    compiled(ours, mask).square().sum().backward()
    model(theirs, mask).square().sum().backward()
    assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-5)


def check(model, backend, batch, **options):
    compiled = torch.compile(model, backend=backend, fullgraph=True, **options)
    x, mask = batch(3, 9)
    for ignore in (None, mask):
        check_inference(model, compiled, x, ignore)
        check_gradient(model, compiled, x, ignore)


@pytest.mark.parametrize("name", ["tied", "folded features"])
def test_compiled_is_eager(name, make_model, batch):
    """Other kinds are compiled in tests/theory/loss; the rest is slow."""
    model = make_model(name)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    x, mask = batch(3, 9)
    check_inference(model, compiled, x, None)
    check_gradient(model, compiled, x, mask)


@pytest.mark.slow
def test_compiled_is_eager_in_every_mode(kind, make_model, batch):
    check(make_model(kind), "eager", batch)


@pytest.mark.slow
def test_compiled_by_inductor_is_eager(make_model, batch):
    check(make_model("data"), "inductor", batch)


@pytest.mark.slow
def test_compiled_by_inductor_with_dynamic_shapes(kind, make_model, batch):
    check(make_model(kind), "inductor", batch, dynamic=True)


def check_one_graph(model, batch):
    counter = CompileCounterWithBackend("eager")
    compiled = torch.compile(model, backend=counter, fullgraph=True, dynamic=True)
    with torch.no_grad():
        for size in [(2, 70), (3, 65), (5, 64), (4, 131), (2, 5)]:
            x, mask = batch(*size)
            assert_close(compiled(x, mask), model(x, mask))
    assert counter.frame_count == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["data", "causal tied"])
def test_one_graph_serves_every_size(name, make_model, batch):
    check_one_graph(make_model(name), batch)


@pytest.mark.slow
def test_one_graph_serves_every_size_of_every_kind(kind, make_model, batch):
    check_one_graph(make_model(kind), batch)


@pytest.mark.slow
def test_cross_attention(make_model, batch):
    for name in ("data", "tied"):
        layer = make_model(name).layer
        compiled = torch.compile(layer, backend="eager", fullgraph=True)
        (x, _), (y, mask) = batch(3, 4), batch(3, 9)
        expected, _ = layer(x, y, y, key_padding_mask=mask)
        assert_close(compiled(x, y, y, key_padding_mask=mask)[0], expected)


@pytest.mark.parametrize("name", ["causal free", "causal tied"])
def test_streaming_steps_compile(name, make_model, batch):
    layer = make_model(name).layer
    x, _ = batch(2, 6)
    counter = CompileCounterWithBackend("eager")
    step = torch.compile(layer.step, backend=counter, fullgraph=True)
    state, rows = layer.init_state(2), []
    with torch.no_grad():
        for token in x.unbind(1):
            row, state = step(token, state)
            rows.append(row)
        assert_close(torch.stack(rows, 1), layer(x)[0], rtol=1e-4, atol=1e-5)
    assert counter.frame_count == 1


def test_float_padding_mask(make_model, batch):
    model = make_model("tied")
    x, mask = batch(3, 9)
    floating = torch.zeros(3, 9).masked_fill(mask, -torch.inf)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    assert_close(compiled(x, floating), model(x, mask))
