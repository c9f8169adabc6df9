"""What all attentions have in common: options, the check of a call, steps through a stream."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from typing import Any, ClassVar, SupportsIndex

import torch
from torch import Tensor, nn

from .inputs import Sequences, arrange
from .masks import expect_tensor
from .rotation import Rotation
from .summary import Growth, KeptRows, Summary, expect_summary


class Attention(nn.Module):
    """Base of the mechanisms. A subclass has `in_proj_weight`, `out_proj` and a forward with the
    convention of nn.MultiheadAttention; if it can stream, it is a `Streaming` too. A method
    `cost(length, batch)` is its formula, see cost.py.

    Args:
        embed_dim: width d of inputs and outputs.
        num_heads: number h of heads, each of width p = embed_dim / num_heads.
        causal: position i sees no position after it; self-attention only.
        bias: the projections have a bias.
        dropout: probability that an entry of the attention matrix is dropped in training.
        batch_first: tensors are (batch, length, d), otherwise (length, batch, d).
        device: where the parameters are made.
        dtype: type of the parameters, and of the tensors that the layer expects.
    """

    has_values: ClassVar[bool] = True  # whether `value` may differ from `key`
    has_cross: ClassVar[bool] = True  # whether `key` may differ from `query`
    has_pair_masks: ClassVar[bool] = False  # whether `attn_mask` may hide or weight single pairs
    has_rotation: ClassVar[bool] = False  # whether times may turn queries and keys
    # how much `summarise` keeps of a context: a mechanism with sums says "constant"
    summary: ClassVar[Growth | None] = "linear"
    # torch's encoder layers read this: False keeps their fused softmax path away from us.
    _qkv_same_embed_dim: ClassVar[bool] = False
    in_proj_weight: nn.Parameter

    def __init__(
        self, embed_dim: int, num_heads: int, *, causal: bool, dropout: float, batch_first: bool
    ) -> None:
        super().__init__()
        check_positive(embed_dim=embed_dim, num_heads=num_heads)
        if embed_dim % num_heads:
            raise ValueError(
                f"num_heads is {num_heads}; expected a divisor of embed_dim = {embed_dim}"
            )
        if not 0.0 <= dropout < 1.0:
            raise ValueError(f"dropout is {dropout}; expected a number in [0, 1)")
        self.embed_dim, self.num_heads = int(embed_dim), int(num_heads)
        self.head_dim = self.embed_dim // self.num_heads
        self.causal, self.dropout, self.batch_first = causal, dropout, batch_first

    def coverage(self, length: int) -> int:
        """How many of `length` positions can influence the output of another position: all, except
        the last one of a causal layer, unless the mechanism says otherwise."""
        check_positive(length=length)
        return length - 1 if self.causal or length == 1 else length

    def summarise(self, key: Tensor, key_padding_mask: Tensor | None = None) -> Summary:
        """What this layer has to know of a context key (B, M, d) to answer any query later:
        `attend(query, summarise(key))` equals `forward(query, key)[0]`. Its `growth` with M is the
        fact `summary` of the mechanism."""
        if self.causal or not self.has_cross:
            kind = "a causal layer" if self.causal else type(self).__name__
            raise ValueError(f"{kind} has no context apart from its queries; expected another one")
        call, _ = self._arrange(key, None, None, key_padding_mask)
        return self._summarise(call, self._valid(call))

    def attend(self, query: Tensor, summary: Summary) -> Tensor:
        """Attend from query (B, N, d) to a context by its summary: the output (B, N, d), zero for a
        context without any valid position. It can be differentiated; primal layers leave no term of
        J, which needs the scores of every key."""
        call, _ = self._arrange(query, None, None, None)
        if not isinstance(summary, Summary):
            raise TypeError(f"summary is of type {type(summary).__name__}; expected a Summary")
        out = self._attend_to(call, summary)
        return call.restore(out.masked_fill((summary.count <= 0)[:, None, None], 0.0))

    def _summarise(self, call: Sequences, count: Tensor) -> Summary:
        """Of a checked context with so many valid positions (B,): the rows, unless a mechanism has
        something shorter."""
        rows = call.y if call.ignore is None else call.y.masked_fill(call.ignore[..., None], 0.0)
        return KeptRows(count, call.batched, (rows,), call.ignore)

    def _attend_to(self, call: Sequences, summary: Summary) -> Tensor:
        """The output rows (B, N, d) of checked queries."""
        kept = expect_summary(summary, KeptRows, len(call.x), call.batched)
        first = self.batch_first
        query, key = (t if first else t.transpose(0, 1) for t in (call.x, kept.rows[0]))
        out: Tensor = self(query, key, key_padding_mask=kept.ignore)[0]
        return out if first else out.transpose(0, 1)

    def _valid(self, call: Sequences) -> Tensor:
        """The valid positions of a context (B,)."""
        if call.ignore is None:
            return call.y.new_full((len(call.y),), call.y.shape[1], dtype=torch.long)
        return (~call.ignore).sum(-1)

    def extra_repr(self) -> str:
        """The options that are kept under their names."""
        known = [n for n in inspect.signature(type(self)).parameters if n in vars(self)]
        own = [f"{n}={getattr(self, n)!r}" for n in known[2:] if n != "batch_first"]
        return ", ".join([str(self.embed_dim), str(self.num_heads), *own])

    def _arrange(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        key_padding_mask: Tensor | None,
        rotation: Rotation | None = None,
    ) -> tuple[Sequences, Tensor]:
        """Check a call and bring it to (batch, length, width); the second result is the values."""
        call, values = arrange(
            query, key, value, key_padding_mask,
            embed_dim=self.embed_dim, dtype=self.in_proj_weight.dtype,
            batch_first=self.batch_first, has_values=self.has_values,
        )  # fmt: skip
        if not call.is_self and (self.causal or not self.has_cross):
            kind = "a causal layer" if self.causal else type(self).__name__
            raise ValueError(
                f"{kind} was given a key that is not the query; expected self-attention"
            )
        return call if rotation is None else self._rotated(call, rotation), values

    def _rotated(self, call: Sequences, rotation: Rotation) -> Sequences:
        """The call with a rotation of its positions, which is checked."""
        if not self.has_rotation:
            raise ValueError(
                f"{type(self).__name__} was given a rotation; expected None, or one of the "
                "attentions that know times: primal with tied weights, linear or softmax"
            )
        if not call.is_self:
            raise ValueError("a rotation was given with a key; expected self-attention")
        batch, length, _ = call.x.shape
        rotation.check(batch, self.num_heads, length, self.head_dim)
        return call._replace(rotation=rotation)

    def _mask_shape(self, call: Sequences) -> tuple[int, int, int]:
        """That of an attn_mask with a matrix for every head."""
        return call.x.shape[0] * self.num_heads, call.x.shape[1], call.y.shape[1]


class Streaming(Attention):
    """An attention that can continue, token by token, from a state."""

    @abstractmethod
    def init_state(self, batch_size: int) -> Any:
        """The state of a stream before its first token; causal layers only."""

    def _continue(self, call: Sequences, values: Tensor, state: Any) -> tuple[Tensor, Any]:
        """The output rows (B, N, d) of a causal call after a state, and the state after them."""
        raise NotImplementedError(f"{type(self).__name__} defines neither prefill nor _continue")

    def prefill(
        self,
        x: Tensor,
        key_padding_mask: Tensor | None = None,
        state: Any = None,
        rotation: Rotation | None = None,
    ) -> tuple[Tensor, Any]:
        """A causal forward over x that continues from a state and returns the state after it."""
        self._expect_causal("prefill")
        call, values = self._arrange(x, None, None, key_padding_mask, rotation)
        state = self.init_state(call.x.shape[0]) if state is None else state
        out, state = self._continue(call, values, state)
        return call.restore(out), state

    def step(self, x_t: Tensor, state: Any) -> tuple[Tensor, Any]:
        """One token x_t (B, d), or a sequence of one in the layer's layout: output, next state."""
        expect_tensor("x_t", x_t, f"(batch, {self.embed_dim})")
        time = 1 if self.batch_first else 0
        if x_t.dim() == 3 and x_t.shape[time] == 1:
            return self.prefill(x_t, state=state)
        if x_t.dim() != 2:
            raise ValueError(
                f"x_t has shape {tuple(x_t.shape)}; expected (batch, {self.embed_dim}) or a "
                "sequence of one position"
            )
        out, state = self.prefill(x_t.unsqueeze(time), state=state)
        return out.squeeze(time), state

    def _expect_causal(self, name: str) -> None:
        if not self.causal:
            raise ValueError(f"{name} needs a state; expected a layer built with causal=True")


def check_batch(state: int, batch: int) -> None:
    """Raise unless a state is that of so many streams."""
    if state != batch:
        raise ValueError(f"the state has batch size {state}; expected {batch}")


def check_positive(**numbers: int) -> None:
    """Raise unless every option is an integer of at least 1."""
    for name, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, SupportsIndex) or int(number) < 1:
            raise ValueError(f"{name} is {number!r}; expected an integer of at least 1")
