"""Agents against the model over the whole episode."""

import pytest
import torch

from primal_attention.models.decision import DecisionTransformer
from primal_attention.tasks.rl.agents import StreamAgent, WindowAgent, make_agent
from primal_attention.tasks.rl.judge import decisions_per_second

STEPS = 13


def build(attention=("softmax", "primal"), **options):
    torch.manual_seed(0)
    sizes = {"state_dim": 3, "action_dim": 2, "context": 5, "horizon": 30, "width": 8, "heads": 2}
    own = {"primal": {"rank": 3}} if "primal" in attention else None
    return DecisionTransformer(
        attention=attention, attention_options=own, dtype=torch.float64, **(sizes | options)
    ).eval()


def play(agent, batch=2):
    """Act in random states; returns states, actions, returns-to-go."""
    g = torch.Generator().manual_seed(1)
    states = torch.randn(STEPS, batch, 3, generator=g, dtype=torch.float64)
    rewards = torch.rand(STEPS, batch, generator=g, dtype=torch.float64)
    agent.reset(batch, 4.0)
    actions = [agent.act(states[t], rewards[t - 1] if t else None) for t in range(STEPS)]
    to_go = 4.0 - torch.cat([torch.zeros(1, batch), rewards[:-1].cumsum(0)])
    return states.transpose(0, 1), torch.stack(actions, 1), to_go.mT.unsqueeze(-1)


def expected(model, states, actions, returns, t, count):
    """The action at t from the last `count` steps, by the model itself."""
    own = slice(t - count + 1, t + 1)
    times = torch.arange(STEPS).expand(len(states), -1)
    return model(states[:, own], actions[:, own], returns[:, own], times[:, own])[:, -1]


@pytest.mark.parametrize("context", [1, 2, 5])
def test_a_window_is_the_model_over_the_last_steps(context):
    model = build()
    played = play(WindowAgent(model, context=context))
    for t in range(STEPS):
        found = expected(model, *played, t, min(t + 1, context))
        torch.testing.assert_close(played[1][:, t], found)


@pytest.mark.parametrize("attention", [("softmax", "primal"), ("linear", "performer")])
def test_a_stream_as_long_as_the_episode_is_the_model_over_all_of_it(attention):
    model = build(attention)
    played = play(StreamAgent(model, context=STEPS))
    for t in range(STEPS):
        torch.testing.assert_close(played[1][:, t], expected(model, *played, t, t + 1))


@pytest.mark.parametrize(("context", "known"), [
    (4, [1, 2, 3, 4, 2, 3, 4, 2, 3, 4, 2, 3, 4]),
    (5, [1, 2, 3, 4, 5, 2, 3, 4, 5, 2, 3, 4, 5]),
    (1, [1] * 13),
])  # fmt: skip
def test_a_stream_starts_anew_from_the_last_half(context, known):
    model = build()
    played = play(StreamAgent(model, context=context))
    for t, count in enumerate(known):
        torch.testing.assert_close(played[1][:, t], expected(model, *played, t, count))


def test_behaviour_cloning_sees_no_returns():
    model = build(conditioned=False)
    agent = make_agent(model, stream=True)
    played = play(agent)
    agent.reset(2, 1e6)
    again = torch.stack([agent.act(played[0][:, t]) for t in range(STEPS)], 1)
    torch.testing.assert_close(again, played[1])


def test_a_model_that_cannot_stream_is_refused():
    with pytest.raises(ValueError, match="cannot go on from a memory"):
        make_agent(build(("reformer",)), stream=True)
    with pytest.raises(ValueError, match="context is 0"):
        make_agent(build(), context=0)


@pytest.mark.parametrize("stream", [False, True])
def test_a_filled_agent_is_one_that_stood_still(stream):
    model = build()
    with torch.no_grad():  # an agent that does nothing by itself
        model.predict.weight.zero_()
        model.predict.bias.zero_()
    states = torch.randn(3, 2, 3, dtype=torch.float64)
    lived, filled = (make_agent(model, stream=stream, context=20) for _ in range(2))
    for agent in (lived, filled):
        agent.reset(2, 4.0)
    for t in range(7):
        lived.act(states[t % 3], torch.zeros(2) if t else None)
    filled.fill(7, states)
    with torch.no_grad():
        model.predict.weight.normal_()
    next_ones = [agent.act(states[0], torch.zeros(2)) for agent in (lived, filled)]
    torch.testing.assert_close(*next_ones)
    assert next_ones[0].abs().min() > 0


@pytest.mark.parametrize("stream", [False, True])
def test_filled_with_nothing(stream):
    states = torch.randn(3, 2, 3, dtype=torch.float64)
    plain, filled = (make_agent(build(), stream=stream) for _ in range(2))
    for agent in (plain, filled):
        agent.reset(2, 4.0)
    filled.fill(0, states)
    torch.testing.assert_close(filled.act(states[0]), plain.act(states[0]))


@pytest.mark.parametrize("stream", [False, True])
def test_the_pace_is_measured(stream):
    agent = make_agent(build(), stream=stream)
    assert decisions_per_second(agent, decisions=6, episodes=2) > 0
    with pytest.raises(ValueError, match="decisions is 0"):
        decisions_per_second(agent, decisions=0)
