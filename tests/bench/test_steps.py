"""What is timed is the whole of it: all parameters get their gradient, the input too."""

import pytest
import torch

from primal_attention.bench import Settings
from primal_attention.bench.candidates import parse_candidate
from primal_attention.bench.settings import ARENA
from primal_attention.bench.steps import make_inputs, make_step, memory_step

CANDIDATES = (
    "floor",
    "softmax",
    "softmax:materialised",
    "primal:data",
    "primal:free",
    "primal:tied",
)
SMALL = {"width": 16, "rank": 4, "batch_size": 2, "threads": 1}


@pytest.fixture
def grads(monkeypatch):
    """Records what torch.autograd.grad was asked for and what it found."""
    found = []
    real = torch.autograd.grad

    def grad(outputs, inputs, *others, **options):
        result = real(outputs, inputs, *others, **options)
        found.append((outputs, inputs, result))
        return result

    monkeypatch.setattr(torch.autograd, "grad", grad)
    return found


@pytest.mark.parametrize("text", CANDIDATES)
def test_a_block_trains_input_and_parameters(text, grads):
    settings = Settings(**SMALL)
    inputs = make_inputs(settings, 24)
    step = make_step(settings, parse_candidate(text), inputs)
    for _ in range(2):  # steps leave nothing behind
        grads.clear()
        out = step()
        assert out.shape == (2, 24, 16)
        assert not out.requires_grad
        ((outputs, leaves, found),) = grads
        assert leaves[0].shape == inputs.shape
        assert len(leaves) > 4
        assert all(g is not None and g.isfinite().all() for g in found)
        # beside the output: q and k of the floor, the KSVD loss of primal
        assert len(outputs) == (1 if "softmax" in text else 2)


@pytest.mark.parametrize("text", CANDIDATES)
def test_a_forward_pass_has_no_gradients(text):
    settings = Settings(**SMALL, mode="forward")
    out = make_step(settings, parse_candidate(text), make_inputs(settings, 24))()
    assert out.shape == (2, 24, 16)
    assert not out.requires_grad


@pytest.mark.parametrize("text", CANDIDATES)
def test_an_encoder_takes_a_whole_step(text, monkeypatch):
    settings = Settings(**SMALL, what="encoder")
    built = []
    real = torch.optim.AdamW.__init__

    def remember(self, params, *others, **options):
        params = list(params)
        built.extend(params)
        real(self, params, *others, **options)

    monkeypatch.setattr(torch.optim.AdamW, "__init__", remember)
    step = make_step(settings, parse_candidate(text), make_inputs(settings, 24))
    before = [parameter.detach().clone() for parameter in built]
    out = step()
    assert out.shape == (2, 10)
    assert all(parameter.grad is not None for parameter in built)
    assert all(not torch.equal(a, b) for a, b in zip(built, before, strict=True))


@pytest.mark.parametrize("text", ["softmax:materialised+primal:data", "floor+primal:free"])
def test_layers_with_attentions_of_their_own(text, monkeypatch):
    from primal_attention.bench import steps

    models = []
    real = steps._encoder
    monkeypatch.setattr(steps, "_encoder", lambda *given: models.append(real(*given)) or models[-1])
    settings = Settings(**SMALL, what="encoder")
    out = make_step(settings, parse_candidate(text), make_inputs(settings, 24))()
    assert out.isfinite().all()
    (model,) = models
    kinds = [type(layer.attention).__name__ for layer in model.encoder.layers]
    first = "Floor" if text.startswith("floor") else "MaterialisedSoftmax"
    assert kinds == [first, "PrimalAttention"]
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_equal_seeds_give_equal_steps():
    settings = Settings(**SMALL)
    inputs = make_inputs(settings, 24)
    assert torch.equal(inputs, make_inputs(settings, 24))
    first, second = (make_step(settings, parse_candidate("primal"), inputs)() for _ in range(2))
    assert torch.equal(first, second)


def test_a_memory_step_is_the_same_step_from_plain_values():
    settings = Settings(**SMALL, dtype="float64")
    step = memory_step(settings.to_dict(), "primal:free", 100)
    direct = make_step(settings, parse_candidate("primal:free"), make_inputs(settings, 100))
    assert torch.equal(step(), direct())
    assert step().dtype == torch.float64


@pytest.mark.parametrize("text", CANDIDATES)
@pytest.mark.parametrize("what", ARENA)
def test_the_models_of_the_arena(what, text):
    settings = Settings(what=what, **SMALL)
    inputs = make_inputs(settings, 24)
    assert inputs.shape == ((2, 2, 24) if what == "lra/retrieval" else (2, 24))
    step = make_step(settings, parse_candidate(text), inputs)
    before, after = step(), step()
    assert before.shape == (2, 10)
    assert not torch.equal(before, after)  # the optimiser has moved the weights
