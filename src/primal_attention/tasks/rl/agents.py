"""Agents: a Decision Transformer that acts in several episodes at once, from their beginning."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...models.decision import DecisionMemory, DecisionTransformer


class _Step(NamedTuple):
    states: Tensor  # (B, state_dim)
    returns: Tensor  # (B, 1), to go
    timesteps: Tensor  # (B,)


class WindowAgent:
    """Looks at the last `context` steps and computes all of them anew for every action."""

    def __init__(self, model: DecisionTransformer, *, context: int | None = None) -> None:
        self.model = model.eval()
        self.context = model.context if context is None else context
        if self.context < 1:
            raise ValueError(f"context is {context}; expected an integer of at least 1")
        self._like = model.predict.weight

    def reset(self, episodes: int, target: float) -> None:
        """Begin new episodes, in each of which the agent shall collect `target`."""
        self._steps: list[_Step] = []
        self._actions: list[Tensor] = []
        self._time = 0
        self._returns = self._like.new_full((episodes, 1), target)

    @torch.no_grad()
    def act(self, states: Tensor, rewards: Tensor | None = None) -> Tensor:
        """Actions (B, action_dim) in states (B, state_dim), after the rewards (B,) of the last
        actions, None at the beginning."""
        if rewards is not None:
            self._returns = self._returns - rewards.to(self._like).unsqueeze(-1)
        times = torch.full((len(states),), self._time, device=self._like.device)
        self._steps.append(_Step(states.to(self._like), self._returns, times))
        action = self._decide()
        self._actions.append(action)
        self._time += 1
        del self._steps[: -self.context], self._actions[: -self.context]
        return action

    def fill(self, steps: int, states: Tensor) -> None:
        """Pretend that `steps` steps were taken, in states (S, B, state_dim) in turn and without
        doing anything: the quick way to a full context."""
        nothing = self._like.new_zeros(states.shape[1], self.model.action_dim)
        for t in range(steps):
            times = torch.full((states.shape[1],), self._time + t, device=self._like.device)
            now = states[t % len(states)].to(self._like)
            self._steps.append(_Step(now, self._returns, times))
            self._actions.append(nothing)
        self._time += steps

    def _decide(self) -> Tensor:
        count = min(self.context, len(self._steps))
        states, returns, times = self._stacked(count)
        unknown = states.new_zeros(len(states), self.model.action_dim)
        actions = torch.stack([*self._taken(count), unknown], 1)
        predicted: Tensor = self.model(states, actions, returns, times)
        return predicted[:, -1]

    def _stacked(self, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """The last steps, this one included, as (B, T, ...)."""
        states, returns, times = zip(*self._steps[-count:], strict=True)
        return torch.stack(states, 1), torch.stack(returns, 1), torch.stack(times, 1)

    def _taken(self, count: int) -> list[Tensor]:
        """The actions of the last steps but this one."""
        return self._actions[-(count - 1) :] if count > 1 else []


class StreamAgent(WindowAgent):
    """Goes on from the layers' states: an action costs the three tokens of a step.

    A state cannot forget single steps. When it has seen `context` steps the agent starts a new one
    from the last half of them, so that it always knows between context / 2 and context steps, and
    a step costs two on average. With a context as long as an episode nothing is ever forgotten,
    and the actions are those of the model over the whole episode.
    """

    def __init__(self, model: DecisionTransformer, *, context: int | None = None) -> None:
        super().__init__(model, context=context)
        model.init_memory(1)  # raises unless the model streams

    def reset(self, episodes: int, target: float) -> None:
        super().reset(episodes, target)
        self._memory: DecisionMemory | None = None

    @torch.no_grad()
    def fill(self, steps: int, states: Tensor) -> None:
        super().fill(steps, states)
        if steps == 0:
            return
        count = min(steps, self.context)
        seen, returns, times = self._stacked(count)
        taken = torch.stack(self._actions[-count:-1] or [self._actions[-1]], 1)[:, : count - 1]
        _, self._memory = self.model.prefill(seen, taken, returns, times)

    def _decide(self) -> Tensor:
        if self._memory is not None and self._memory.steps >= self.context:
            self._memory = None
        renewed = min(len(self._steps), max(1, self.context // 2))
        count = renewed if self._memory is None else 1
        states, returns, times = self._stacked(count)
        taken = self._taken(count) if self._memory is None else self._actions[-1:]
        nothing = states.new_zeros(len(states), 0, self.model.action_dim)
        actions = torch.stack(taken, 1) if taken else nothing
        action, self._memory = self.model.prefill(states, actions, returns, times, self._memory)
        return action


def make_agent(
    model: DecisionTransformer, *, stream: bool = False, context: int | None = None
) -> WindowAgent:
    """An agent that streams or one that computes its window anew."""
    return (StreamAgent if stream else WindowAgent)(model, context=context)
