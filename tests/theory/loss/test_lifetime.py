"""What the objective keeps alive, copies and costs."""

import copy
import gc
import io
import pickle
import threading
import warnings
import weakref
from collections import Counter

import pytest
import torch
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

import primal_attention as pa
from primal_attention.theory.ledger import Ledger


@pytest.fixture(scope="module", autouse=True)
def small_heap():
    """What other tests left: every collection here would walk through it."""
    gc.collect()
    gc.freeze()


def watched(x):
    """A function of x whose graph keeps a tensor alive, and a reference that knows if it does."""
    saved = x.exp()
    return saved.sin(), weakref.ref(saved)


def alive(references):
    gc.collect()
    return sum(reference() is not None for reference in references)


@pytest.mark.parametrize("eta", [0.0, 0.5])
def test_nothing_is_kept_after_backward(kind, eta, make_layer, held, randn):
    layer = make_layer(kind)
    h, reference = watched(randn(2, 5, 8).requires_grad_())
    out, _ = layer(h)
    del h
    assert alive([reference]) == 1  # the graph has it
    loss = out.square().mean()
    if eta:
        loss = loss + eta * pa.ksvd_loss(layer)
    del out
    loss.backward()
    del loss
    assert held(layer) == 0
    assert alive([reference]) == 0


def test_a_read_loss_that_is_dropped_is_forgotten_at_the_next_forward(make_layer, held, randn):
    layer = make_layer({"weights": "free"})
    h, reference = watched(randn(2, 5, 8).requires_grad_())
    layer(h)
    del h
    pa.ksvd_loss(layer)
    assert alive([reference]) == 1
    layer(randn(2, 5, 8))
    assert held(layer) == 1
    assert alive([reference]) == 0


def test_forwards_without_backward_are_bounded_and_warned_about(make_layer, held, randn):
    layer, references = make_layer({"weights": "free"}), []
    x = randn(1, 3, 8).requires_grad_()

    def forward():
        h, reference = watched(x)
        references.append(reference)
        layer(h)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(32):
            forward()
    for _ in range(10):
        with pytest.warns(UserWarning, match=r"32 training forwards without .*model\.eval\(\)"):
            forward()
    assert held(layer) == 32
    assert alive(references) == 32
    with pytest.warns(UserWarning, match="the oldest is forgotten"):
        layer(x)[0].sum().backward()
    assert held(layer) == 0
    assert alive(references) == 0


def test_forwards_without_gradients_are_bounded_silently(make_layer, held, randn):
    layer, x = make_layer({"weights": "tied"}), randn(1, 3, 8)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error")
        for _ in range(80):
            layer(x)
    assert held(layer) <= 32


def test_backward_through_the_loss_alone_releases(make_layer, held, randn):
    layer = make_layer({"weights": "data", "anchors": 3})
    layer(randn(2, 5, 8))
    layer(randn(2, 4, 8))
    pa.ksvd_loss(layer).backward()
    assert held(layer) == 0


def test_a_ledger_dies_with_its_layer(make_layer, randn):
    layer = make_layer({"weights": "free"})
    loss = layer(randn(1, 4, 8))[0].sum()
    reference = weakref.ref(layer.ledger)
    del layer
    assert alive([reference]) == 0
    loss.backward()  # what it would have released is gone already


# -- copies ----------------------------------------------------------------------------------------


def saved_and_loaded(model):
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


@pytest.mark.parametrize(
    "duplicate",
    [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), saved_and_loaded],
    ids=["deepcopy", "pickle", "torch.save"],
)
def test_a_copy_has_a_ledger_of_its_own(duplicate, kind, make_encoder, held, randn):
    model, x = make_encoder(kind), randn(2, 5, 8)
    out = model(x)
    twin = duplicate(model)
    assert all(held(layer) == 0 for layer in twin.layers)
    with pytest.raises(RuntimeError, match="no forward pass"):
        pa.ksvd_loss(twin)
    twin(x)
    value = pa.ksvd_loss(twin)
    assert_close(value, pa.ksvd_loss(model))
    value.backward()  # must not release the original
    (out.sum() + pa.ksvd_loss(model)).backward()
    assert all(held(layer) == 0 for layer in model.layers)


def test_state_dict_does_not_know_the_ledger(make_encoder, randn):
    model = make_encoder({"weights": "free"})
    before = set(model.state_dict())
    model(randn(1, 4, 8))
    assert set(model.state_dict()) == before
    assert not [name for name in before if "ledger" in name]


# -- other models, other threads -------------------------------------------------------------------


def test_two_models_do_not_interfere(make_encoder, by_hand, randn):
    kind = {"weights": "tied"}
    a, b = make_encoder(kind, depth=1), make_encoder(kind, depth=1)
    x, y = randn(1, 5, 8), randn(1, 6, 8)
    a(x)
    out = b(y)
    (out.sum() + pa.ksvd_loss(b)).backward()
    expected = by_hand(a.layers[0], x[0]) ** 2
    assert_close(pa.ksvd_loss(a), expected, rtol=1e-11, atol=1e-12)


def test_models_in_threads_do_not_interfere(make_encoder, gradients, randn):
    models = [make_encoder({"weights": "tied"}) for _ in range(4)]
    inputs = [randn(2, 4 + i, 8) for i in range(4)]

    def train(model, x):
        for _ in range(20):
            model.zero_grad()
            out = model(x)
            (out.square().mean() + pa.ksvd_loss(model)).backward()

    expected = []
    for model, x in zip(models, inputs, strict=True):
        train(model, x)
        expected.append(gradients(model))
    failures = []

    def guarded(*args):
        try:
            train(*args)
        except Exception as error:
            failures.append(error)

    pairs = zip(models, inputs, strict=True)
    threads = [threading.Thread(target=guarded, args=pair) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    for model, wanted in zip(models, expected, strict=True):
        assert_close(gradients(model), wanted)


# -- cost ------------------------------------------------------------------------------------------


class Operators(TorchDispatchMode):
    """Counts operators, and those that touch one tensor."""

    def __init__(self, tensor):
        super().__init__()
        self.count, self.pointer, self.touched = Counter(), tensor.data_ptr(), 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count[str(function)] += 1
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        self.touched += any(t.data_ptr() == self.pointer for t in tensors)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("fast", [True, False])
def test_eval_records_nothing_and_computes_nothing_for_it(
    kind, fast, make_layer, held, randn, monkeypatch
):
    layer, x = make_layer(kind), randn(2, 5, 8)
    layer.fast = fast
    with Operators(layer.sqrt_lambda) as training:
        expected, _ = layer(x)
    layer.ledger.release()
    layer.eval()

    def fail(*_):
        raise AssertionError("recorded in eval mode")

    monkeypatch.setattr(Ledger, "record", fail)
    with Operators(layer.sqrt_lambda) as evaluation:
        out, _ = layer(x)
    assert held(layer) == 0
    assert training.touched > 0
    assert evaluation.touched == 0  # no Lambda, no energy
    extra = training.count - evaluation.count
    # sums of squares, times Lambda, the trace and the concatenation: only training has them
    assert evaluation.count["aten.cat.default"] < training.count["aten.cat.default"]
    assert sum(extra.values()) >= 5
    more = {op: n for op, n in (evaluation.count - training.count).items() if "empty" not in op}
    assert not more
    assert torch.equal(out, expected)


def test_eval_keeps_no_graph(make_layer, randn):
    layer = make_layer({"weights": "free"}).eval()
    h, reference = watched(randn(2, 5, 8).requires_grad_())
    layer(h)
    del h
    assert alive([reference]) == 0
