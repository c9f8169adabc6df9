"""The Decision Transformer as a whole: causal, streamed as in one go, blind to padding."""

import pytest
import torch

import primal_attention as pa
from primal_attention.models.decision import DecisionTransformer

CAUSAL = [n for n in pa.available_attentions() if pa.attention_info(n).causal]
STREAMING = [n for n in CAUSAL if pa.attention_info(n).streaming]
MIXED = ("softmax", "primal")


def build(attention, *, dtype=torch.float64, **options):
    torch.manual_seed(0)
    names = (attention, attention) if isinstance(attention, str) else attention
    own = {"primal": {"rank": 3}} if "primal" in names else None
    sizes = {"state_dim": 3, "action_dim": 2, "context": 7, "horizon": 30, "width": 8, "heads": 2}
    sizes |= {"attention_options": own} | options
    model = DecisionTransformer(attention=names, dtype=dtype, **sizes)
    model.set_scales_(state_mean=0.5, state_std=2.0, action_scale=[1.5, 0.5], return_scale=10.0)
    return model.eval()


def test_the_default_is_the_papers_model():
    model = DecisionTransformer(state_dim=3, action_dim=2)
    assert [type(layer.attention).__name__ for layer in model.encoder.layers] == [
        "SoftmaxAttention", "SoftmaxAttention", "PrimalAttention"
    ]  # fmt: skip
    last = model.encoder.layers[-1].attention
    assert (last.rank, last.weights, last.causal) == (32, "free", True)


def episode(batch=2, steps=7, *, seed=1):
    g = torch.Generator().manual_seed(seed)

    def draw(*size):
        return torch.randn(batch, steps, *size, generator=g, dtype=torch.float64)

    first = torch.arange(batch).unsqueeze(-1) * 4
    return [draw(3), draw(2), 10 * draw(1), first + torch.arange(steps)]


@pytest.mark.parametrize("attention", [*CAUSAL, MIXED], ids=str)
@pytest.mark.parametrize("conditioned", [True, False])
def test_what_comes_later_changes_nothing_before_it(attention, conditioned):
    model = build(attention, conditioned=conditioned)
    inputs = episode()
    before = model(*inputs)
    at = 4
    # an action predicted at t may depend on the state and the return at t, not on the action at t
    for which, unchanged in ((0, at), (1, at + 1), (2, at)):
        changed = [t.clone() for t in inputs]
        changed[which][:, at] += 3.0
        after = model(*changed)
        assert torch.equal(after[:, :unchanged], before[:, :unchanged])
        sees = not (which == 2 and not conditioned) and attention != "none"
        if sees:
            assert not torch.allclose(after[:, unchanged:], before[:, unchanged:], atol=1e-9)


@pytest.mark.parametrize("attention", [*STREAMING, MIXED], ids=str)
@pytest.mark.parametrize("conditioned", [True, False])
def test_streamed_equals_full(attention, conditioned):
    model = build(attention, conditioned=conditioned)
    states, actions, returns, times = episode()
    full = model(states, actions, returns, times)
    assert model.streams
    memory, found = None, []
    for t in range(7):
        now = slice(t, t + 1)
        taken = actions[:, max(t - 1, 0) : t]
        action, memory = model.prefill(
            states[:, now], taken, returns[:, now], times[:, now], memory
        )
        found.append(action)
    assert memory.steps == 7
    torch.testing.assert_close(torch.stack(found, 1), full, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("split", [1, 3, 6])
def test_several_steps_at_once_equal_full(split):
    model = build(MIXED)
    states, actions, returns, times = episode()
    full = model(states, actions, returns, times)
    one, memory = model.prefill(
        states[:, :split], actions[:, : split - 1], returns[:, :split], times[:, :split]
    )
    two, _ = model.prefill(
        states[:, split:], actions[:, split - 1 : -1], returns[:, split:], times[:, split:], memory
    )
    torch.testing.assert_close(one, full[:, split - 1])
    torch.testing.assert_close(two, full[:, -1])


@pytest.mark.parametrize("attention", [*CAUSAL, MIXED], ids=str)
def test_padding_on_the_left_changes_nothing(attention):
    model = build(attention)
    inputs = episode(steps=4)
    alone = model(*inputs)
    filled = [torch.cat([torch.zeros_like(t[:, :3]), t], 1) for t in inputs]
    for tensor in filled[:3]:
        tensor[:, :3] = torch.nan
    padding = (torch.arange(7) < 3).expand(2, 7)
    padded = model(*filled, padding)
    torch.testing.assert_close(padded[:, 3:], alone, rtol=1e-9, atol=1e-10)
    assert (padded[:, :3] == 0).all()


def test_padding_reaches_no_gradient():
    model = build(MIXED).train()
    inputs = episode()
    inputs[0][:, :2] = torch.nan
    padding = (torch.arange(7) < 2).expand(2, 7)
    loss = model(*inputs, padding)[~padding].square().mean() + 0.1 * pa.ksvd_loss(model)
    loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all(), name


def test_units_of_the_environment():
    """Scaled data in a model without scales give the same, and actions stay within their bounds."""
    model, plain = build(MIXED), build(MIXED)
    plain.set_scales_(state_mean=0, state_std=1, action_scale=1, return_scale=1)
    states, actions, returns, times = episode()
    scale = torch.tensor([1.5, 0.5], dtype=torch.float64)
    found = model(states, actions, returns, times)
    expected = scale * plain((states - 0.5) / 2, actions / scale, returns / 10, times)
    torch.testing.assert_close(found, expected)
    with torch.no_grad():
        model.predict.bias += 100.0
    assert torch.equal(model(states, actions, returns, times)[0, 0], scale)
    assert torch.equal(build(MIXED).state_dict()["action_scale"], scale)


def test_primal_layers_have_free_weights_and_a_ksvd_loss():
    model = build(MIXED).train()
    assert model.encoder.layers[1].attention.weights == "free"
    model(*episode())
    assert pa.ksvd_loss(model).item() > 0


def test_tied_weights_stream_too():
    model = build(MIXED, attention_options={"primal": {"rank": 3, "weights": "tied"}})
    states, actions, returns, times = episode()
    action, _ = model.prefill(states, actions[:, :-1], returns, times)
    torch.testing.assert_close(action, model(states, actions, returns, times)[:, -1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attention": ("softmax", "linformer")}, "'linformer' has no causal form"),
        ({"attention": ("sofmax",)}, "did you mean 'softmax'"),
        ({"attention": "softmax"}, "one name per layer"),
        ({"context": 0}, "context is 0; expected an integer of at least 1"),
        ({"attention_options": {"primal": {"rank": 3, "causal": False}}}, "has causal; expected"),
    ],
)  # fmt: skip
def test_wrong_options(options, message):
    with pytest.raises(ValueError, match=message):
        DecisionTransformer(**({"state_dim": 3, "action_dim": 2} | options))


def test_wrong_inputs():
    model = build(MIXED)
    states, actions, returns, times = episode()
    with pytest.raises(ValueError, match=r"states has shape \(2, 3\)"):
        model(states[:, 0], actions, returns, times)
    with pytest.raises(ValueError, match=r"actions has shape \(2, 6, 2\); expected \(2, 7, 2\)"):
        model(states, actions[:, 1:], returns, times)
    with pytest.raises(ValueError, match="timesteps go up to 40; expected less than horizon = 30"):
        model(states, actions, returns, times + 30)
    with pytest.raises(ValueError, match="timesteps begin at -1; expected at least 0"):
        model(states, actions, returns, times - 1 - times.min())
    with pytest.raises(ValueError, match="actions has 7 steps; expected 6"):
        model.prefill(states, actions, returns, times)
    with pytest.raises(ValueError, match="expected positive numbers"):
        model.set_scales_(state_mean=0, state_std=0, action_scale=1, return_scale=1)


def test_a_model_that_does_not_stream_says_so():
    model = build(("softmax", "reformer"))
    assert not model.streams
    with pytest.raises(ValueError, match="cannot go on from a memory"):
        model.init_memory(1)


def test_a_new_model_looks_at_states_more_than_at_the_time():
    """Timesteps begin as a whisper: embeddings as loud as the states slow learning down."""
    model = build("softmax", width=32)
    states, actions, returns, times = episode(batch=7, steps=1)
    before = model(states, actions, returns, times)
    by_time = (model(states, actions, returns, (times + 7) % 30) - before).square().mean()
    by_state = (model(states.flip(0), actions, returns, times) - before).square().mean()
    assert by_time < 0.1 * by_state
