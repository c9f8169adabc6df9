import pytest
import torch
from torch import nn
from torch.testing import assert_close

import primal_attention as pa

EXACT = {"rtol": 1e-11, "atol": 1e-12}


@pytest.mark.parametrize("positions", ["mean", "sum"])
def test_one_layer_is_equation_11(kind, positions, make_layer, by_hand, randn):
    layer, x = make_layer(kind), randn(3, 7, 8)
    layer(x)
    found = pa.ksvd_loss(layer, positions=positions)
    expected = torch.stack([by_hand(layer, row, positions=positions) ** 2 for row in x]).mean()
    assert found.shape == ()
    assert_close(found, expected, **EXACT)
    names, tensors = zip(*layer.named_parameters(), strict=True)
    ours = torch.autograd.grad(found, tensors, allow_unused=True)
    theirs = torch.autograd.grad(expected, tensors, allow_unused=True)
    for name, a, b in zip(names, ours, theirs, strict=True):
        zero = torch.zeros_like(layer.get_parameter(name))
        a, b = (zero if g is None else g for g in (a, b))
        assert_close(a, b, rtol=1e-9, atol=1e-11, msg=lambda text, name=name: f"{name}: {text}")


def test_padding_does_not_count(kind, make_layer, by_hand, randn):
    layer, x = make_layer(kind), randn(2, 9, 8)
    mask = torch.zeros(2, 9, dtype=torch.bool)
    mask[1, 6:] = True
    layer(x.masked_fill(mask.unsqueeze(-1), torch.nan), key_padding_mask=mask)
    expected = (by_hand(layer, x[0]) ** 2 + by_hand(layer, x[1, :6]) ** 2) / 2
    assert_close(pa.ksvd_loss(layer), expected, **EXACT)


@pytest.mark.parametrize("weights", ["data", "free", "tied"])
def test_cross_attention_sums_r_over_the_keys(weights, make_layer, by_hand, randn):
    layer, x, y = make_layer({"weights": weights}), randn(2, 4, 8), randn(2, 7, 8)
    mask = torch.zeros(2, 7, dtype=torch.bool)
    mask[1, 5:] = True
    layer(x, y, y, key_padding_mask=mask)
    expected = (by_hand(layer, x[0], y[0]) ** 2 + by_hand(layer, x[1], y[1, :5]) ** 2) / 2
    assert_close(pa.ksvd_loss(layer), expected, **EXACT)


def test_layers_are_averaged_or_summed(make_encoder, by_hand, randn):
    model, x = make_encoder({"weights": "tied"}, depth=3), randn(2, 5, 8)
    inputs = []
    for layer in model.layers:
        layer.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    model(x)
    layers = zip(model.layers, inputs, strict=True)
    losses = torch.stack([sum(by_hand(layer, row) ** 2 for row in h) / 2 for layer, h in layers])
    assert_close(pa.ksvd_loss(model), losses.mean(), **EXACT)
    assert_close(pa.ksvd_loss(model, reduction="sum"), losses.sum(), **EXACT)


def test_dropout_does_not_touch_the_objective(make_layer, by_hand, randn):
    layer, x = make_layer({"weights": "free"}, dropout=0.5), randn(1, 6, 8)
    layer(x)
    assert_close(pa.ksvd_loss(layer), by_hand(layer, x[0]) ** 2, **EXACT)


def test_two_documents_through_one_encoder_are_one_batch(kind, make_encoder, gradients, randn):
    model, a, b = make_encoder(kind), randn(2, 5, 8), randn(3, 9, 8)
    mask = torch.ones(5, 9, dtype=torch.bool)
    mask[:2, :5], mask[2:] = False, False
    together = torch.zeros(5, 9, 8, dtype=torch.float64)
    together[:2, :5], together[2:] = a, b
    model(together, mask)
    expected = pa.ksvd_loss(model)
    expected.backward()
    wanted = gradients(model)
    model(a)
    model(b)
    found = pa.ksvd_loss(model)
    found.backward()
    assert_close(found, expected, **EXACT)
    assert_close(gradients(model), wanted, rtol=1e-9, atol=1e-11)


def test_discarded_outputs_count(make_layer, by_hand, gradients, randn):
    layer, a, b = make_layer({"weights": "data", "anchors": 3}), randn(1, 5, 8), randn(1, 7, 8)
    layer(a)  # nobody keeps this output
    out, _ = layer(b)
    (out.square().mean() + pa.ksvd_loss(layer)).backward()
    found = gradients(layer)
    expected = (by_hand(layer, a[0]) ** 2 + by_hand(layer, b[0]) ** 2) / 2
    layer.eval()
    (layer(b)[0].square().mean() + expected).backward()
    assert_close(found, gradients(layer), rtol=1e-9, atol=1e-11)


def test_one_layer_called_twice_in_one_forward(make_layer, by_hand, randn):
    layer, x = make_layer({"weights": "tied"}), randn(2, 5, 8)
    first = layer(x)[0]
    layer(first)
    rows = [*x, *first]
    expected = torch.stack([by_hand(layer, row) ** 2 for row in rows]).mean()
    assert_close(pa.ksvd_loss(layer), expected, **EXACT)
    assert_close(pa.ksvd_loss(nn.ModuleList([layer, layer])), expected, **EXACT)


def test_many_calls_of_one_layer_before_backward(make_layer, by_hand, randn):
    """Weights shared over depth: as many entries as calls."""
    layer, x = make_layer({"weights": "free"}), randn(1, 3, 8)
    inputs = [x]
    for _ in range(24):
        inputs.append(layer(inputs[-1])[0] + x)
    expected = torch.stack([by_hand(layer, row[0]) ** 2 for row in inputs[:-1]]).mean()
    assert_close(pa.ksvd_loss(layer), expected, **EXACT)


def test_reading_twice_gives_the_same(make_encoder, gradients, randn):
    model, x = make_encoder({"weights": "free"}), randn(2, 5, 8)
    model(x)
    once, twice = pa.ksvd_loss(model), pa.ksvd_loss(model)
    assert torch.equal(once, twice)
    assert_close(pa.ksvd_loss(model, "sum"), 2 * once, **EXACT)
    (once + twice).backward()
    found = gradients(model)
    model(x)
    (2 * pa.ksvd_loss(model)).backward()
    assert_close(found, gradients(model), **EXACT)


def test_a_forward_after_a_reading_starts_anew(make_layer, by_hand, randn):
    layer, a, b = make_layer({"weights": "free"}), randn(1, 5, 8), randn(1, 6, 8)
    layer(a)
    first = pa.ksvd_loss(layer)
    layer(b)
    second = pa.ksvd_loss(layer)
    assert_close(first, by_hand(layer, a[0]) ** 2, **EXACT)
    assert_close(second, by_hand(layer, b[0]) ** 2, **EXACT)
    (first + second).backward()  # each graph is still whole


def test_training_steps_do_not_mix(make_encoder, randn):
    model, batches = make_encoder({"weights": "data", "anchors": 4}), randn(3, 2, 5, 8)
    frozen = []
    for x in batches:
        out = model(x)
        loss = pa.ksvd_loss(model)
        frozen.append(loss.item())
        (out.sum() + loss).backward()
    for x, value in zip(batches, frozen, strict=True):
        model(x)
        assert pa.ksvd_loss(model).item() == value


def test_layers_that_did_not_run_do_not_count(make_encoder, by_hand, randn):
    model, x = make_encoder({"weights": "free"}, depth=2), randn(1, 5, 8)
    model.layers[1](x)
    assert_close(pa.ksvd_loss(model), by_hand(model.layers[1], x[0]) ** 2, **EXACT)


def test_a_model_next_to_softmax_layers(make_layer, by_hand, randn):
    primal, x = make_layer({"weights": "tied"}), randn(2, 5, 8)
    other = pa.make_attention("softmax", 8, 2, dtype=torch.float64)
    model = nn.ModuleList([other, primal])
    primal(other(x)[0])
    h = other(x)[0]
    expected = (by_hand(primal, h[0]) ** 2 + by_hand(primal, h[1]) ** 2) / 2
    assert_close(pa.ksvd_loss(model), expected, **EXACT)


def test_gradient_descent_on_the_loss_lowers_it(make_encoder, randn):
    model, x = make_encoder({"weights": "data", "anchors": 4}), randn(4, 9, 8)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(60):
        optimiser.zero_grad()
        model(x)
        loss = pa.ksvd_loss(model)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 1e-2 * losses[0]


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("fast", [True, False])
def test_the_output_may_be_changed_in_place(kind, fast, batch_first, make_layer, gradients, randn):
    layer, x = make_layer(kind, batch_first=batch_first), randn(5, 5, 8)
    layer.fast = fast
    mask = torch.zeros(5, 5, dtype=torch.bool)
    mask[1, 3:] = True
    for ignore in (None, mask):
        found = []
        for change in (lambda out: (out + x).relu(), lambda out: out.add_(x).relu_()):
            out, _ = layer(x, key_padding_mask=ignore)
            (change(out).square().mean() + pa.ksvd_loss(layer)).backward()
            found.append(gradients(layer))
        assert_close(found[1], found[0], **EXACT)


def test_a_derivative_that_is_part_of_the_loss(make_layer, gradients, held, randn):
    """A backward pass with create_graph is not yet the one that ends the step."""
    layer, x = make_layer({"weights": "tied"}), randn(2, 5, 8).requires_grad_()
    layer.fast = False

    def penalty(out):
        (slope,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
        return slope.square().mean()

    out, _ = layer(x)
    loss = pa.ksvd_loss(layer)
    (penalty(out) + loss).backward()
    expected = gradients(layer)
    out, _ = layer(x)
    late = penalty(out)
    (late + pa.ksvd_loss(layer)).backward()
    assert_close(gradients(layer), expected, **EXACT)
    assert held(layer) == 0


# -- without gradients -----------------------------------------------------------------------------


def test_without_gradients_the_value_is_the_same(make_layer, by_hand, randn):
    layer, x = make_layer({"weights": "tied"}), randn(1, 5, 8)
    with torch.no_grad():
        layer(x)
        found = pa.ksvd_loss(layer)
    assert not found.requires_grad
    assert_close(found, by_hand(layer, x[0]).detach() ** 2, **EXACT)


def test_a_forward_without_gradients_cannot_train(make_layer, randn):
    layer = make_layer({"weights": "free"})
    with torch.no_grad():
        layer(randn(1, 5, 8))
    with pytest.raises(RuntimeError, match="ran without gradients"):
        pa.ksvd_loss(layer)


def test_one_layer_of_two_without_gradients_is_not_lost_silently(make_encoder, randn):
    model, x = make_encoder({"weights": "free"}), randn(1, 5, 8)
    with torch.no_grad():
        h = model.layers[0](x)[0]
    model.layers[1](h)
    with pytest.raises(RuntimeError, match="ran without gradients"):
        pa.ksvd_loss(model)
    pa.ksvd_loss(model.layers[1]).backward()
    model.layers[0].requires_grad_(False)  # frozen on purpose: its J is a constant
    with torch.no_grad():
        h = model.layers[0](x)[0]
    model.layers[1](h)
    assert pa.ksvd_loss(model).requires_grad


def test_forwards_without_gradients_beside_a_training_forward(make_layer, by_hand, randn):
    """A momentum teacher or a rollout with the same layer is not part of the objective."""
    layer, x = make_layer({"weights": "free"}), randn(1, 5, 8)
    with torch.no_grad():
        layer(randn(1, 4, 8))
    layer(x)
    with torch.no_grad():
        layer(randn(1, 6, 8))
    assert_close(pa.ksvd_loss(layer), by_hand(layer, x[0]) ** 2, **EXACT)


def test_a_frozen_model_has_a_constant_loss(make_layer, by_hand, randn):
    layer, x = make_layer({"weights": "data", "anchors": 3}).requires_grad_(False), randn(1, 5, 8)
    layer(x)
    found = pa.ksvd_loss(layer)
    assert not found.requires_grad
    assert_close(found, by_hand(layer, x[0]) ** 2, **EXACT)
    x.requires_grad_()
    layer(x)
    pa.ksvd_loss(layer).backward()
    assert x.grad.abs().sum() > 0


# -- errors ----------------------------------------------------------------------------------------


def test_no_forward_yet(make_encoder):
    with pytest.raises(RuntimeError, match=r"no forward pass: call it after model\(\.\.\.\)"):
        pa.ksvd_loss(make_encoder({"weights": "free"}))


def test_eval_mode_is_named(make_encoder, randn):
    model = make_encoder({"weights": "free"}).eval()
    model(randn(1, 4, 8))
    with pytest.raises(RuntimeError, match=r"eval mode, call model\.train"):
        pa.ksvd_loss(model)


def test_after_backward_there_is_no_forward(make_encoder, randn):
    model = make_encoder({"weights": "free"})
    model(randn(1, 4, 8)).sum().backward()
    with pytest.raises(RuntimeError, match=r"before loss\.backward"):
        pa.ksvd_loss(model)


def test_a_model_without_primal_layers():
    with pytest.raises(ValueError, match="Linear contains no primal attention layer"):
        pa.ksvd_loss(nn.Linear(2, 2))


@pytest.mark.parametrize("bad", [{"reduction": "max"}, {"positions": "median"}])
def test_unknown_conventions(bad, make_encoder, randn):
    model = make_encoder({"weights": "free"})
    model(randn(1, 4, 8))
    ((name, value),) = bad.items()
    with pytest.raises(ValueError, match=f'{name} is \'{value}\'; expected "mean" or "sum"'):
        pa.ksvd_loss(model, **bad)


def test_square_of_the_batch_mean():
    torch.manual_seed(0)
    layer = pa.PrimalAttention(8, 2, weights="data", rank=3, anchors=4, dtype=torch.float64)
    x = torch.randn(5, 6, 8, dtype=torch.float64)
    roots = []
    for sample in x:
        layer(sample[None])
        (entry,) = layer.ledger.read()
        roots.append(entry.objectives().mean())
        layer.ledger.release()
    layer(x)
    loss = pa.ksvd_loss(layer, square="batch")
    torch.testing.assert_close(loss, torch.stack(roots).mean().square())
    assert loss < pa.ksvd_loss(layer)
    with pytest.raises(ValueError, match='square is \'all\'; expected "sample" or "batch"'):
        pa.ksvd_loss(layer, square="all")


def test_growth_by_the_logarithm():
    """log(1 + loss), on what the passes made and on plain operations."""
    torch.manual_seed(0)
    layer = pa.PrimalAttention(8, 2, rank=3, feature_map="elu", dtype=torch.float64)
    layer(torch.randn(5, 6, 8, dtype=torch.float64))
    plain, loss = pa.ksvd_loss(layer), pa.ksvd_loss(layer, growth="log")
    torch.testing.assert_close(loss, torch.log1p(plain))
    (expected,) = torch.autograd.grad(plain, layer.sqrt_lambda, retain_graph=True)
    (found,) = torch.autograd.grad(loss, layer.sqrt_lambda)
    torch.testing.assert_close(found, expected / (1 + plain.detach()))
    with pytest.raises(ValueError, match='growth is \'cube\'; expected "square" or "log"'):
        pa.ksvd_loss(layer, growth="cube")
