"""A language model on any causal attention: tokens are events without times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..attention.base import check_positive
from ..attention.rotation import Rotation, by_head
from ..names import check_choice
from ..theory.time import TimeScales
from .causal import CausalLayer, check_causal, check_rotation, first_states, go_on, shortened
from .dropout import Dropout
from .embedding import TokenEmbedding
from .encoder import Activation, make_encoder
from .packing import Packing
from .positions import LearnedPositions, Positions, SinusoidalPositions

PositionKind = Literal["rotary", "learned", "sinusoidal"]
SHORTEST, LONGEST = 1.0, 1000.0  # distances that rotations tell apart


class LanguageMemory(NamedTuple):
    """What a stream has read: the state of every layer, and how many tokens."""

    layers: tuple[Any, ...]
    tokens: int


class LanguageModel(nn.Module):
    """The next token from all before it: `p(x_{i+1} | x_1 .. x_i) = softmax(E W y_i + b)` with the
    embedding E itself as the last map; W turns a row away from the token that it began as, which
    would else be the likeliest one at the start.

    `positions` "rotary" turns queries and keys by their positions inside the kernel (primal with
    tied weights, linear, softmax) and has no longest text; "learned" and "sinusoidal" add a row of
    a table to each of `max_length` positions, for any causal attention.
    """

    def __init__(
        self,
        vocabulary: int,
        *,
        attention: Sequence[str] = ("primal", "primal"),
        attention_options: Mapping[str, Mapping[str, Any]] | None = None,
        positions: PositionKind = "rotary",
        max_length: int = 256,
        width: int = 128,
        heads: int = 4,
        feedforward: int | None = None,
        dropout: float = 0.1,
        activation: Activation = "gelu",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        feedforward = 4 * width if feedforward is None else feedforward
        check_positive(
            vocabulary=vocabulary, width=width, heads=heads, feedforward=feedforward,
            max_length=max_length,
        )  # fmt: skip
        check_choice("positions", positions, get_args(PositionKind))
        check_choice("activation", activation, get_args(Activation))
        check_causal(attention, attention_options or {})
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self.embed = TokenEmbedding(vocabulary, width, **place)
        self.positions: Positions | None = None
        if positions == "learned":
            self.positions = LearnedPositions(max_length, width, **place)
        elif positions == "sinusoidal":
            self.positions = SinusoidalPositions(max_length, width, **place)
        self.max_length, self.heads, self.pairs = max_length, heads, width // heads // 2
        self.dropout = Dropout(dropout)
        self.encoder = make_encoder(
            attention, attention_options, width=width, heads=heads, feedforward=feedforward,
            activation=nn.GELU() if activation == "gelu" else nn.ReLU(), dropout=dropout,
            norm="pre", layer=CausalLayer, primal={"weights": "tied"},
            settings={"max_length": max_length, "causal": True}, **place,
        )  # fmt: skip
        if positions == "rotary":
            check_rotation(self.encoder, self.pairs)
        self.readout = nn.Linear(width, width, bias=False, **place)
        self.bias = nn.Parameter(torch.zeros(vocabulary, **place))

    @property
    def vocabulary(self) -> int:
        return self.embed.num_embeddings

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (B, N, vocabulary) of the token after each of tokens (B, N)."""
        rows = self._embed(tokens, 0)
        batch, length = tokens.shape
        packing = Packing(batch, length, rotation=self._rotation(tokens, 0))
        return self._predict(self.encoder(rows, packing))

    def without(self, hidden: Tensor, tokens: Tensor) -> Tensor:
        """Logits (m, vocabulary) after tokens (1, N) of which hidden (m, N) are left out: every
        row is that of a shorter text, exactly, since no token sees what stands behind it."""
        last, (kept,) = shortened(hidden, tokens)
        logits = self(kept)
        return cast(Tensor, logits[torch.arange(len(kept), device=kept.device), last])

    def init_memory(self, batch: int) -> LanguageMemory:
        """The memory of streams that have not begun; models that stream only."""
        return LanguageMemory(first_states(self.encoder, batch), 0)

    def prefill(
        self, tokens: Tensor, memory: LanguageMemory | None = None
    ) -> tuple[Tensor, LanguageMemory]:
        """Logits (B, vocabulary) after further tokens (B, N) of streams, and the memory after."""
        memory = self.init_memory(len(tokens)) if memory is None else memory
        rows = self._embed(tokens, memory.tokens)
        rotation = self._rotation(tokens, memory.tokens)
        rows, after = go_on(self.encoder, rows, memory.layers, rotation)
        read = memory.tokens + tokens.shape[1]
        return self._predict(rows[:, -1]), LanguageMemory(after, read)

    @torch.no_grad()
    def generate(
        self,
        tokens: Sequence[int],
        *,
        temperature: float = 1.0,
        top: int | None = None,
        without: Sequence[int] = (),
        generator: torch.Generator | None = None,
    ) -> Iterator[int]:
        """Tokens after these, without end: drawn from the model's chances to the power of
        1 / temperature among the `top` likeliest (0: always the likeliest), never one of `without`.
        Each costs one step of a stream."""
        if not len(tokens):
            raise ValueError("there are no tokens to go on from; expected at least one")
        if top is not None:
            check_positive(top=top)
        if temperature < 0:
            raise ValueError(f"temperature is {temperature}; expected at least 0")
        device = self.embed.weight.device
        read, memory = torch.tensor([list(tokens)], device=device), None
        while True:
            logits, memory = self.prefill(read, memory)
            logits = logits.float().cpu()
            if len(without):
                logits[:, list(without)] = -torch.inf
            if temperature == 0:
                token = logits.argmax(-1, keepdim=True)
            else:
                if top is not None and top < logits.shape[-1]:
                    least = logits.topk(top).values[:, -1:]
                    logits = logits.masked_fill(logits < least, -torch.inf)
                chances = (logits / temperature).softmax(-1)
                token = torch.multinomial(chances, 1, generator=generator)
            yield int(token)
            read = token.to(device)

    # -- parts -------------------------------------------------------------------------------------

    def _embed(self, tokens: Tensor, before: int) -> Tensor:
        if tokens.dim() != 2 or tokens.shape[1] == 0:
            raise ValueError(
                f"tokens has shape {tuple(tokens.shape)}; expected (batch, length) with a token"
            )
        rows = self.embed(tokens)
        if self.positions is not None:
            end = before + tokens.shape[1]
            if end > self.max_length:
                raise ValueError(
                    f"the text has {end} tokens; expected at most max_length = {self.max_length}, "
                    "or positions='rotary'"
                )
            rows = rows + self.positions.table[before:end]
        embedded: Tensor = self.dropout(rows)
        return embedded

    def _rotation(self, tokens: Tensor, before: int) -> Rotation | None:
        if self.positions is not None:
            return None
        like = self.embed.weight
        found = TimeScales(SHORTEST, LONGEST).frequencies(self.heads * self.pairs)
        frequencies = by_head(found, self.heads).to(like)
        order = torch.arange(tokens.shape[1], dtype=torch.float64, device=like.device) + before
        rotation = Rotation.of(order.unsqueeze(0), frequencies)
        return Rotation(*(wave.expand(len(tokens), -1, -1, -1) for wave in rotation))

    def _predict(self, rows: Tensor) -> Tensor:
        return F.linear(self.readout(rows), self.embed.weight, self.bias)
