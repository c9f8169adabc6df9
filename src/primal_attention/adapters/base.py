"""What an adapter says about the attention of another library, and the registry of adapters.

An adapter for an own class is two functions:

    class MyAdapter:
        name = "mine"

        def read(self, module, parent):
            if type(module) is not MyAttention:
                return None
            return Source(
                num_heads=module.heads,
                query=projection(module.to_q), key=projection(module.to_k),
                value=projection(module.to_v), output=projection(module.to_out),
            )

        def wrap(self, module, primal):
            return MyConverted(primal)      # a Converted with MyAttention's calling convention

    register_adapter(MyAdapter())
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from .converted import Converted

_PLAIN = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class Projection(NamedTuple):
    """A linear map x -> weight x + bias; weight (outputs, inputs)."""

    weight: Tensor
    bias: Tensor | None


@dataclass(frozen=True, kw_only=True)
class Source:
    """An attention as the conversion sees it: d -> h heads of width p -> d."""

    num_heads: int
    query: Projection  # (h p, d)
    key: Projection  # (g p, d), g = key_heads
    output: Projection  # (d, h p)
    value: Projection | None = None  # (g p, d); for the start of tied weights
    key_heads: int | None = None  # fewer than num_heads in grouped attention
    causal: bool = False
    cross: bool = False  # queries and keys come from two sequences
    rotary: bool = False  # queries and keys are rotated by their positions
    dropout: float = 0.0
    batch_first: bool = True

    @property
    def embed_dim(self) -> int:
        return self.query.weight.shape[1]

    @property
    def head_dim(self) -> int:
        return self.query.weight.shape[0] // self.num_heads

    @property
    def groups(self) -> int:
        """How many query heads share a key head."""
        return self.num_heads // (self.key_heads or self.num_heads)


@dataclass(frozen=True, kw_only=True)
class HeadsSource:
    """An attention whose module stays, with its projections, rotations and norms: only what happens
    between its h heads of width p is replaced."""

    num_heads: int
    head_dim: int
    embed_dim: int
    like: Tensor = field(repr=False)  # a parameter: type and device
    value: Tensor | None = field(default=None, repr=False)  # (g p, d); for the start
    key_heads: int | None = None  # fewer than num_heads in grouped attention
    causal: bool = False
    cross: bool = False
    dropout: float = 0.0
    dropped: tuple[str, ...] = ()  # what the original does and no conversion keeps
    rotary: bool = False

    @property
    def groups(self) -> int:
        """How many query heads share a key head."""
        return self.num_heads // (self.key_heads or self.num_heads)


class Adapter(Protocol):
    """Reads one kind of attention module and wraps its replacement."""

    name: str

    def read(self, module: nn.Module, parent: nn.Module) -> Source | HeadsSource | None:
        """What the module computes; None if it is not of this kind. A ValueError says why a module
        of this kind cannot be converted."""

    def wrap(self, module: nn.Module, primal: nn.Module) -> Converted:
        """The replacement: primal behind the calling convention of the module. What is
        kept (a layer norm) is copied, so that the original stays as it is."""


_adapters: dict[str, Adapter] = {}


def register_adapter(adapter: Adapter) -> None:
    """Make an adapter known; those that are registered later are asked first."""
    if adapter.name in _adapters:
        raise ValueError(f"adapter {adapter.name!r} is registered twice")
    _adapters[adapter.name] = adapter


def known_adapters() -> dict[str, Adapter]:
    """All adapters by name, in the order in which they are asked."""
    return dict(reversed(_adapters.items()))


def class_path(module: nn.Module) -> str:
    """Module and name of a class: `torch.nn.modules.activation.MultiheadAttention`."""
    kind = type(module)
    return f"{kind.__module__}.{kind.__qualname__}"


def projections(*layers: nn.Module) -> dict[str, Any]:
    """The maps of four layers, for queries, keys, values and outputs, as a Source has them."""
    return dict(zip(("query", "key", "value", "output"), map(projection, layers), strict=True))


def fused(linear: nn.Module, width: int) -> dict[str, Any]:
    """Queries, keys and values of one projection to three times the width."""
    parts = (projection(linear, rows=slice(i * width, (i + 1) * width)) for i in range(3))
    return dict(zip(("query", "key", "value"), parts, strict=True))


def projection(linear: nn.Module, *, rows: slice = slice(None)) -> Projection:
    """The map of an nn.Linear, or of transformers' Conv1D, whose weight is transposed. `rows` takes
    a part of the outputs, as from a fused projection of q, k and v.

    Anything else (a quantised layer, an adapter of low rank, a parametrisation) is refused: its
    weight is not the map that it computes.
    """
    plain = type(linear).__name__ in ("Linear", "NonDynamicallyQuantizableLinear", "Conv1D")
    weight = getattr(linear, "weight", None)
    if not plain or not isinstance(weight, Tensor) or weight.dtype not in _PLAIN:
        dtype = f" of {weight.dtype}" if isinstance(weight, Tensor) else ""
        raise ValueError(
            f"a projection is a {class_path(linear)}{dtype}; expected nn.Linear with a floating "
            "weight (dequantise or merge it first)"
        )
    if type(linear).__name__ == "Conv1D":
        weight = weight.t()
    bias: Tensor | None = getattr(linear, "bias", None)
    return Projection(weight[rows], None if bias is None else bias[rows])
