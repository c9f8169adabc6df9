"""The module stays, and only what happens between its heads is replaced.

Most attentions make queries, keys and values in a way of their own, and then call one function:
transformers' attention interface, or torch's scaled_dot_product_attention. A converted module keeps
all of its own code (projections, rotations, norms, caches, the output) and gets its heads from
another mechanism where it calls that function.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .base import HeadsSource
from .converted import Call, Converted
from .masks import expect_same_past, hidden_pairs, ignored_keys

HEAD_NAMES = ("num_heads", "num_attention_heads", "n_heads", "n_head", "heads", "nhead")
WIDTH_NAMES = ("head_dim", "attention_head_size", "key_value_proj_dim", "dim_head", "d_kv")
_VALUES = ("v_proj", "value", "v", "v_lin", "to_v", "w_v")
_FUSED = ("qkv", "qkv_proj", "Wqkv", "to_qkv", "query_key_value", "c_attn", "in_proj")


class Between(NamedTuple):
    """What a module hands to the function between its heads: q (B, h, N, p), k, v (B, g, M, p)."""

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None = None  # (B, heads, N, M), True = visible, or added to the scores
    bias: Tensor | None = None  # added to the scores
    scale: float | None = None  # of <q, k>; None: 1 / sqrt(p)
    causal: bool = False  # where there is no mask


class Softmax(nn.Module):
    """The function as it was, by its formula: a module that is understood gives with it what it
    gave before."""

    causal = False
    call: Between | None = None  # the last one

    def between(self, call: Between) -> Tensor:
        self.call = call
        query, key, value = call.query, *_all_heads(call)
        scale = query.shape[-1] ** -0.5 if call.scale is None else call.scale
        scores = (query * scale) @ key.mT
        scores = scores if call.bias is None else scores + call.bias
        if call.mask is not None:
            if call.mask.dtype == torch.bool:
                scores = scores.masked_fill(~call.mask, torch.finfo(scores.dtype).min)
            else:
                scores = scores + call.mask[..., : key.shape[2]]
        elif call.causal and query.shape[2] > 1:
            future = scores.new_ones(scores.shape[-2:], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(future, torch.finfo(scores.dtype).min)
        return scores.softmax(-1) @ value


class HeadsConverted(Converted):
    """A copy of the original, with a mechanism between its heads. What else a model asks of the
    module is that of the copy."""

    window: int | None = None  # of the original, in which it saw other positions
    biased = False  # the original added a bias of positions to its scores

    def __init__(self, primal: nn.Module, original: nn.Module) -> None:
        super().__init__(primal)
        self.module = copy.deepcopy(original)
        self._past: tuple[int, Any] = (0, None)  # positions and state before the call under way
        self._after: Any = None
        self._answered = 0  # calls, in the forward under way

    @property
    def cross(self) -> bool:
        return self.conversion.cross

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "module":  # not there yet
                raise
            return getattr(self.module, name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def between(self, call: Between) -> Tensor:
        """The heads (B, h, N, p) of a call."""
        self._answered += 1
        if isinstance(self.primal, Softmax):
            return self.primal.between(call)
        query, (key, value) = call.query, _all_heads(call)
        past, state = self._past
        if call.mask is None and call.causal != bool(self.primal.causal) and query.shape[2] > 1:
            raise ValueError(
                f"it is called with is_causal={call.causal}; expected {self.primal.causal}, as it "
                "was converted"
            )
        ignore = self._ignored(call.mask, query.shape[0], query.shape[2], key.shape[2] + past)
        if call.scale is not None:  # mechanisms divide by sqrt(p) themselves
            query = query * (call.scale * query.shape[-1] ** 0.5)
        if past:
            ignore = expect_same_past(ignore, past, state)
        heads, self._after = self.primal(query, key, value, ignore, state, cross=self.cross)
        if ignore is not None and not self.cross:
            heads = heads.masked_fill(ignore[:, None, :, None], 0.0)
        return heads  # type: ignore[no-any-return]

    def _ignored(self, mask: Tensor | None, batch: int, queries: int, keys: int) -> Tensor | None:
        if mask is None:
            return None
        hidden = hidden_pairs(mask, true_means="visible", biased=self.biased)
        hidden = hidden[:, None, None] if hidden.dim() == 2 else hidden
        if self.biased and not bool(self.primal.causal):  # a bias differs between heads
            hidden = hidden.all(1, keepdim=True)
        return ignored_keys(
            hidden, batch=batch, queries=queries, keys=keys, causal=bool(self.primal.causal),
            cross=self.cross, window=self.window,
        )  # fmt: skip

    @contextmanager
    def once(self) -> Iterator[None]:
        """In a `with`, exactly one call is answered: a second one would share its weights."""
        self._answered = 0
        yield
        if not self._answered:
            raise ValueError("its forward has no softmax of queries and keys that meets values")
        if self._answered > 1:
            raise ValueError(
                f"its forward has {self._answered} attentions; expected one in each module"
            )

    def translate(self, *args: Any, **kwargs: Any) -> Call:
        """The sequence that asks, and which of its positions are ignored."""
        given = arguments(self.module, args, kwargs)
        x = next(value for value in given.values() if isinstance(value, Tensor))
        mask = next((given[n] for n in ("attention_mask", "mask", "attn_mask") if n in given), None)
        context = given.get("key_value_states")
        if not isinstance(mask, Tensor) or self.cross or mask.dim() not in (2, 4):
            return Call(x, None, context)
        return Call(x, self._ignored(mask, x.shape[0], x.shape[1], x.shape[1]), context)


def arguments(module: nn.Module, args: Any, kwargs: Any) -> dict[str, Any]:
    """The arguments of a call by their names."""
    bound = inspect.signature(module.forward).bind_partial(*args, **kwargs).arguments
    rest = bound.pop("kwargs", {})
    return {**bound, **(rest if isinstance(rest, dict) else {})}


def _all_heads(call: Between) -> tuple[Tensor, Tensor]:
    """Keys and values for every query head, in the type of the queries."""
    groups = call.query.shape[1] // call.key.shape[1]
    key, value = call.key, call.value
    if groups > 1:
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    return key, value


# -- what a module says about its heads ------------------------------------------------------------


def mentions(module: nn.Module, name: str) -> bool:
    """Whether the code of a module's forward has a function, an attribute or a variable of a
    name."""
    code = getattr(inspect.unwrap(type(module).forward), "__code__", None)
    return code is not None and name in (*code.co_names, *code.co_varnames)


def calls(module: nn.Module, name: str) -> bool:
    """Whether a module's forward mentions a function, itself or in what it calls by name: methods
    of its class, and functions beside it."""
    kind = type(module)
    waiting, seen = [inspect.unwrap(kind.forward)], set()
    while waiting:
        function = waiting.pop()
        code = getattr(function, "__code__", None)
        if code is None or code in seen:
            continue
        seen.add(code)
        if name in code.co_names:
            return True
        for other in code.co_names:
            places = [vars(base) for base in kind.__mro__] + [function.__globals__]
            found = (place.get(other) for place in places)
            found = (getattr(each, "__func__", each) for each in found)  # of a static method
            waiting += [
                each
                for each in found
                if inspect.isfunction(each) and not each.__module__.startswith("torch")
            ]
    return False


def read_heads(module: nn.Module, **facts: Any) -> HeadsSource:
    """Heads and their width by the usual names, else by the shapes of the projections."""
    config = getattr(module, "config", None)
    linears: list[Any] = [
        part
        for part in module.modules()
        if isinstance(part, nn.Linear) or type(part).__name__ == "Conv1D"
    ]
    if not linears:
        raise ValueError("it has no linear layer; expected those of queries, keys and values")
    heads = _number(module, HEAD_NAMES) or _number(config, HEAD_NAMES)
    if heads is None:
        raise ValueError(
            f"{type(module).__name__} does not say how many heads it has; expected a number in "
            f"one of {', '.join(HEAD_NAMES)}"
        )
    rows, columns = linears[0].weight.shape
    embed = rows if type(linears[0]).__name__ == "Conv1D" else columns
    width = _number(module, WIDTH_NAMES) or _number(config, WIDTH_NAMES) or embed // heads
    keys = _number(module, ("num_key_value_heads",))
    groups = _number(module, ("num_key_value_groups",))
    keys = keys or (heads // groups if groups else heads)
    return HeadsSource(
        num_heads=heads, head_dim=width, embed_dim=embed, like=linears[0].weight, key_heads=keys,
        value=_value_weight(module, heads, keys, width), dropout=_dropout(module), **facts,
    )  # fmt: skip


def _value_weight(module: nn.Module, heads: int, keys: int, width: int) -> Tensor | None:
    """The weight (g p, d) of the values, alone or the last part of a fused projection."""
    for name, part in module.named_modules():
        last = name.rpartition(".")[2]
        if last not in (*_VALUES, *_FUSED) or not isinstance(part, nn.Linear):
            continue
        rows = part.weight.shape[0]
        if last in _VALUES and rows == keys * width:
            return part.weight.detach()
        if last in _FUSED and rows == (heads + 2 * keys) * width:
            return part.weight.detach()[-keys * width :]
    return None


def _dropout(module: Any) -> float:
    """The dropout of the attention matrix."""
    for name in ("attention_dropout", "attn_dropout", "dropout", "attn_drop"):
        found = getattr(module, name, None)
        found = getattr(found, "p", found)
        if isinstance(found, float | int) and not isinstance(found, bool):
            return float(found)
    return 0.0


def _number(owner: Any, names: tuple[str, ...]) -> int | None:
    found = (getattr(owner, name, None) for name in names)
    return next(
        (n for n in found if isinstance(n, int) and not isinstance(n, bool) and n > 0), None
    )
