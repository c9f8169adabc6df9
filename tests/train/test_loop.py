"""The loop computes what a plain training loop computes, and says where it fails."""

import math

import pytest
import torch
from lightning_fabric import Fabric
from torch.nn import functional as F

import primal_attention as pa
from primal_attention.tasks import get_task
from primal_attention.tasks.buckets import shuffled_batches
from primal_attention.tasks.classification.objective import Classification
from primal_attention.train import NotFiniteError
from primal_attention.train.loop import Loop, Progress
from primal_attention.train.optim import make_optimizer
from primal_attention.train.order import learning_rate


@pytest.fixture
def make_loop():
    """Builds a loop, and its model, from settings."""

    def make(settings):
        objective = Classification.load(get_task(settings.task), settings)
        torch.manual_seed(0)
        model = objective.model()
        optimizer = make_optimizer(
            settings.optimizer, model.parameters(), lr=settings.lr, weight_decay=0.0
        )
        fabric = Fabric(accelerator="cpu", devices=1, precision=settings.precision)
        parts = fabric.setup(model, optimizer)
        return Loop(fabric, settings, *parts, objective), model

    return make


@pytest.mark.parametrize("attention", [("primal", "primal"), ("softmax", "primal"), ("softmax",)])
@pytest.mark.parametrize(("clip", "growth"), [(None, "square"), (0.3, "log")])
def test_steps_are_those_of_a_plain_loop(attention, clip, growth, config, make_loop):
    settings = config(
        attention=attention, clip=clip, dropout=0.0, epochs=2, optimizer="adam", eta=0.3,
        schedule="cosine", warmup_steps=2, precision="64-true", ksvd_growth=growth,
    )  # fmt: skip
    loop, model = make_loop(settings)
    events = [event for event in loop if hasattr(event, "grad_norm")]

    objective = Classification.load(get_task(settings.task), settings)
    torch.manual_seed(0)
    plain = objective.model().double()
    optimizer = torch.optim.Adam(plain.parameters())
    step = 0
    for epoch in (1, 2):
        for indices in shuffled_batches(len(objective.examples), 10, settings.seed, epoch):
            batch = objective.examples.__getitems__(indices)
            task = F.cross_entropy(plain(batch.inputs.double(), batch.padding), batch.targets)
            loss = task
            if "primal" in attention:
                loss = task + 0.3 * pa.ksvd_loss(plain, growth=growth)
                assert events[step].ksvd_loss == pytest.approx(pa.ksvd_loss(plain).item())
            else:
                assert events[step].ksvd_loss is None
            optimizer.zero_grad()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(plain.parameters(), clip or math.inf)
            optimizer.param_groups[0]["lr"] = learning_rate(settings, step, 8)
            optimizer.step()
            assert events[step].task_loss == pytest.approx(task.item())
            assert events[step].grad_norm == pytest.approx(norm.item())
            assert events[step].lr == optimizer.param_groups[0]["lr"]
            step += 1
    assert step == len(events) == 8
    for name, parameter in plain.named_parameters():
        found = model.get_parameter(name)
        assert torch.allclose(found, parameter, rtol=1e-5, atol=1e-7), name


def test_dropout_of_a_step_depends_on_the_step_alone(config, make_loop):
    loop, _ = make_loop(config())
    run = iter(loop)
    first = next(run)
    other, _ = make_loop(config())
    torch.rand(1000)  # whatever was drawn before
    assert next(iter(other)) == first


def test_best_weights_are_those_of_the_best_epoch(config, make_loop):
    loop, model = make_loop(config(epochs=4, lr=0.05))
    weights = {}
    for event in loop:
        if hasattr(event, "best_epoch"):
            weights[event.epoch] = {k: v.clone() for k, v in model.state_dict().items()}
    expected = weights[loop.progress.best["epoch"]]
    assert all(torch.equal(loop.best_weights[name], expected[name]) for name in expected)


def test_the_last_epoch_counts_where_the_settings_say_so(config, make_loop):
    loop, model = make_loop(config(epochs=3, lr=0.05, keep="last"))
    list(loop)
    assert loop.progress.best["epoch"] == 3
    assert all(torch.equal(loop.best_weights[k], v) for k, v in model.state_dict().items())


def test_progress_round_trip():
    best = {"epoch": 1, "accuracy": 1 / 3, "loss": 2 / 3}
    progress = Progress(epoch=3, batch=2, step=9, task_sum=0.1 + 0.2, best=best)
    progress.last = {"last_accuracy": 0.25}
    stored = progress.to_dict()
    assert stored["best"] == best
    assert stored["last_accuracy"] == 0.25
    assert Progress.from_dict(stored, 4) == progress
    assert Progress.from_dict(Progress().to_dict(), 4) == Progress()


@pytest.mark.parametrize(
    ("step", "task_sum", "place"),
    [(0, 0.0, (1, 0, 0)), (3, 0.5, (1, 3, 3)), (4, 0.5, (1, 4, 4)), (4, 0.0, (2, 0, 0))],
)
def test_progress_of_an_earlier_version(step, task_sum, place):
    """Epochs of four steps; one whose evaluation is still to come has its losses."""
    stored = {"step": step, "task_sum": task_sum, "ksvd_sum": 0.0, "seconds": 1.0}
    found = Progress.from_dict(stored, 4)
    assert (found.epoch, found.batch, found.cases) == place
    assert (found.step, found.best, found.last) == (step, None, {})


# -- numbers that are not finite -------------------------------------------------------------------


def fails(loop, message):
    run = iter(loop)
    next(run)
    next(run)
    with pytest.raises(NotFiniteError, match=f"^training stopped in epoch 1, step 3: {message}"):
        next(run)


def test_a_bad_parameter_is_named(config, make_loop):
    loop, model = make_loop(config())
    run = iter(loop)
    next(run)
    with torch.no_grad():
        model.encoder.layers[1].feedforward.expand.weight[0, 0] = torch.nan
    before = [p.clone() for p in model.parameters()]
    with pytest.raises(NotFiniteError) as caught:
        next(run)
    assert str(caught.value) == (
        "training stopped in epoch 1, step 2: the task loss is nan; the parameter "
        "encoder.layers.1.feedforward.expand.weight is not finite"
    )
    # no step was made
    for old, new in zip(before, model.parameters(), strict=True):
        assert torch.equal(old, new) or old.isnan().any()


def test_a_bad_layer_is_named(config, make_loop):
    loop, model = make_loop(config(attention=("softmax", "primal")))
    attention = model.encoder.layers[0].attention
    attention.register_forward_hook(lambda module, inputs, out: (out[0] * torch.inf, None))
    with pytest.raises(NotFiniteError, match=r"the output of encoder\.layers\.0\.attention is not"):
        next(iter(loop))


def test_bad_inputs_are_named(config, make_loop):
    loop, _ = make_loop(config())
    loop.examples.rows[:] = torch.inf
    with pytest.raises(NotFiniteError, match="the inputs are not finite"):
        next(iter(loop))


def test_the_ksvd_loss_is_told_from_the_task_loss(config, make_loop):
    loop, model = make_loop(config())
    with torch.no_grad():
        model.encoder.layers[0].attention.sqrt_lambda.fill_(1e30)  # squared: beyond float32
    with pytest.raises(NotFiniteError, match="step 1: the KSVD loss is inf"):
        next(iter(loop))


def test_a_bad_gradient_is_named(config, make_loop):
    loop, model = make_loop(config())
    bias = model.encoder.layers[0].norm_attention.bias
    bias.register_hook(lambda gradient: gradient * torch.nan)
    message = "the losses are finite but the gradient is not; the gradient of encoder.layers.0.norm"
    with pytest.raises(NotFiniteError, match=message):
        next(iter(loop))
