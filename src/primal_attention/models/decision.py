"""Decision Transformer: actions from the returns that are asked for, on any causal attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, get_args

import torch
from torch import Tensor, nn

from ..attention.base import check_positive
from ..names import check_choice
from .causal import CausalLayer, check_causal, first_states, go_on, streams
from .dropout import Dropout
from .encoder import Activation, make_encoder
from .packing import Packing


class DecisionMemory(NamedTuple):
    """What a model that streams knows of the episodes under way: the state of every layer, and the
    number of steps that it has seen."""

    layers: tuple[Any, ...]
    steps: int


class DecisionTransformer(nn.Module):
    """Actions of an agent from what it has seen and the return that it should still collect
    (Chen et al.: Decision Transformer, NeurIPS 2021).

    A step t is three tokens, the return-to-go R_t, the state s_t and the action a_t, each a linear
    map plus an embedding of t; the action is read off at the token of the state,

        a_t = scale * tanh(W y_t + b),    y_t of the tokens R_1, s_1, a_1, ..., R_t, s_t.

    `attention` names the causal attention of every layer, first layer first: the paper's Primal.+DT
    is ("softmax", "softmax", "primal"), primal layers have free weights and rank 32 unless
    `attention_options` say otherwise. `context` is the number of steps that the model is meant to
    see at once. With conditioned=False there are no returns: behaviour cloning.

    Inputs are in the units of the environment. `set_scales_` says how they are brought to numbers
    around one; the scales are buffers, so they are saved with the weights.
    """

    state_mean: Tensor
    state_std: Tensor
    action_scale: Tensor
    return_scale: Tensor

    def __init__(
        self,
        *,
        state_dim: int,
        action_dim: int,
        context: int = 20,
        horizon: int = 1000,
        attention: Sequence[str] = ("softmax", "softmax", "primal"),
        attention_options: Mapping[str, Mapping[str, Any]] | None = None,
        conditioned: bool = True,
        width: int = 256,
        heads: int = 4,
        feedforward: int | None = None,
        dropout: float = 0.1,
        activation: Activation = "relu",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        feedforward = 4 * width if feedforward is None else feedforward
        check_positive(
            state_dim=state_dim, action_dim=action_dim, context=context, horizon=horizon,
            width=width, heads=heads, feedforward=feedforward,
        )  # fmt: skip
        check_choice("activation", activation, get_args(Activation))
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self.state_dim, self.action_dim = state_dim, action_dim
        self.context, self.horizon, self.conditioned = context, horizon, conditioned
        self.tokens = 3 if conditioned else 2  # of a step
        self.embed_return = nn.Linear(1, width, **place) if conditioned else None
        self.embed_state = nn.Linear(state_dim, width, **place)
        self.embed_action = nn.Linear(action_dim, width, **place)
        self.embed_time = nn.Embedding(horizon, width, **place)
        # torch's own start, of size one, drowns the state in noise that takes long to unlearn
        nn.init.normal_(self.embed_time.weight, std=0.02)
        self.norm = nn.LayerNorm(width, **place)
        self.dropout = Dropout(dropout)
        act = nn.GELU() if activation == "gelu" else nn.ReLU()
        check_causal(attention, attention_options or {})
        self.encoder = make_encoder(
            attention, attention_options, width=width, heads=heads, feedforward=feedforward,
            activation=act, dropout=dropout, norm="pre", layer=CausalLayer,
            primal={"weights": "free", "rank": 32},
            settings={"max_length": context * self.tokens, "causal": True}, **place,
        )  # fmt: skip
        self.predict = nn.Linear(width, action_dim, **place)
        self.register_buffer("state_mean", torch.zeros(state_dim, **place))
        self.register_buffer("state_std", torch.ones(state_dim, **place))
        self.register_buffer("action_scale", torch.ones(action_dim, **place))
        self.register_buffer("return_scale", torch.ones(1, **place))

    def set_scales_(
        self, *, state_mean: Any, state_std: Any, action_scale: Any, return_scale: float
    ) -> None:
        """How inputs are scaled: (s - state_mean) / state_std, a / action_scale, R / return_scale;
        `action_scale` bounds the predicted actions."""
        given = {"state_std": state_std, "action_scale": action_scale, "return_scale": return_scale}
        for name, value in ({"state_mean": state_mean} | given).items():
            buffer = getattr(self, name)
            number = torch.as_tensor(value).to(buffer).broadcast_to(buffer.shape)
            if name in given and not bool((number > 0).all()):
                raise ValueError(f"{name} is {number.tolist()}; expected positive numbers")
            buffer.copy_(number)

    @property
    def streams(self) -> bool:
        """Whether all layers can continue from a state."""
        return streams(self.encoder)

    def forward(
        self,
        states: Tensor,
        actions: Tensor,
        returns: Tensor,
        timesteps: Tensor,
        padding: Tensor | None = None,
    ) -> Tensor:
        """Predicted actions (B, T, action_dim), each from what came before it.

        states (B, T, state_dim), actions (B, T, action_dim), returns-to-go (B, T, 1), timesteps
        (B, T) int64 in [0, horizon), padding (B, T) bool, True = ignore: such steps predict zero.
        """
        self._check(states, actions, returns, timesteps, padding)
        ignore = None
        if padding is not None:  # what stands there must not reach a gradient: NaN * 0 is NaN
            ignore = padding.repeat_interleave(self.tokens, 1)
            hidden = padding.unsqueeze(-1)
            states, actions, returns = (
                t.masked_fill(hidden, 0.0) for t in (states, actions, returns)
            )
        rows = self._embed(states, actions, returns, timesteps)  # (B, tokens * T, d)
        rows = self.encoder(rows, Packing(rows.shape[0], rows.shape[1], ignore))
        predicted = self._act(rows[:, self.tokens - 2 :: self.tokens])
        return predicted if padding is None else predicted.masked_fill(padding.unsqueeze(-1), 0.0)

    # -- step by step ----------------------------------------------------------------------------

    def init_memory(self, batch_size: int) -> DecisionMemory:
        """The memory of episodes that have not begun; models that stream only."""
        return DecisionMemory(first_states(self.encoder, batch_size), 0)

    def prefill(
        self,
        states: Tensor,
        actions: Tensor,
        returns: Tensor,
        timesteps: Tensor,
        memory: DecisionMemory | None = None,
    ) -> tuple[Tensor, DecisionMemory]:
        """The next action (B, action_dim) after T steps, of which the last has no action yet, and
        the memory of them. Shapes as in `forward`, but actions are (B, T - 1, action_dim), or
        (B, T, action_dim) with a memory: those taken since the last step that it has seen."""
        memory = self.init_memory(len(states)) if memory is None else memory
        before = int(memory.steps > 0)  # the memory's last step waits for its action
        taken = states.shape[1] - 1 + before
        if actions.shape[1] != taken:
            raise ValueError(
                f"actions has {actions.shape[1]} steps; expected {taken}, one for each step but "
                "the last"
            )
        own = actions[:, before:]
        last = own.new_zeros(len(own), 1, self.action_dim)
        self._check(states, torch.cat([own, last], 1), returns, timesteps, None)
        rows = self._embed(states, torch.cat([own, last], 1), returns, timesteps)[:, :-1]
        if before:
            time = self.embed_time((timesteps[:, :1] - 1).clamp(min=0))
            waiting = self._embed_action(actions[:, :1]) + time
            rows = torch.cat([self.dropout(self.norm(waiting)), rows], 1)
        rows, after = go_on(self.encoder, rows, memory.layers)
        action = self._act(rows[:, -1])
        return action, DecisionMemory(after, memory.steps + states.shape[1])

    # -- parts -----------------------------------------------------------------------------------

    def _embed(self, states: Tensor, actions: Tensor, returns: Tensor, timesteps: Tensor) -> Tensor:
        """Tokens (B, tokens * T, d) in the order R_1, s_1, a_1, R_2, ..."""
        state = self.embed_state((states - self.state_mean) / self.state_std)
        kinds = [state, self._embed_action(actions)]
        if self.embed_return is not None:
            kinds.insert(0, self.embed_return(returns / self.return_scale))
        time = self.embed_time(timesteps)
        rows = torch.stack([kind + time for kind in kinds], 2).flatten(1, 2)
        embedded: Tensor = self.dropout(self.norm(rows))
        return embedded

    def _embed_action(self, actions: Tensor) -> Tensor:
        embedded: Tensor = self.embed_action(actions / self.action_scale)
        return embedded

    def _act(self, rows: Tensor) -> Tensor:
        return self.action_scale * torch.tanh(self.predict(rows))

    def _check(
        self,
        states: Tensor,
        actions: Tensor,
        returns: Tensor,
        timesteps: Tensor,
        padding: Tensor | None,
    ) -> None:
        if states.dim() != 3 or states.shape[1] == 0:
            raise ValueError(
                f"states has shape {tuple(states.shape)}; expected (batch, steps, "
                f"{self.state_dim}) with at least one step"
            )
        batch, steps = states.shape[:2]
        expected: dict[str, tuple[Tensor | None, tuple[int, ...]]] = {
            "states": (states, (batch, steps, self.state_dim)),
            "actions": (actions, (batch, steps, self.action_dim)),
            "returns": (returns, (batch, steps, 1)),
            "timesteps": (timesteps, (batch, steps)),
            "padding": (padding, (batch, steps)),
        }
        for name, (tensor, shape) in expected.items():
            if tensor is not None and tuple(tensor.shape) != shape:
                raise ValueError(f"{name} has shape {tuple(tensor.shape)}; expected {shape}")
        if torch.compiler.is_compiling():
            return
        first, last = torch.stack([timesteps.min(), timesteps.max()]).tolist()
        if first < 0:
            raise ValueError(f"timesteps begin at {first}; expected at least 0")
        if last >= self.horizon:
            raise ValueError(
                f"timesteps go up to {last}; expected less than horizon = {self.horizon}"
            )
