"""What is measured: the settings that all figures of one benchmark share."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ..names import check_choice

ARENA = ("lra/listops", "lra/text", "lra/retrieval", "lra/image", "lra/pathfinder")
WHATS = ("block", "encoder", *ARENA)
LAYERS = 2  # of all models
Mode = Literal["forward", "training"]
DType = Literal["float32", "float64", "bfloat16", "float16"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """`what` is a complete attention block (self-attention with its projections), a two-layer
    encoder classifier, or the model of a task of the Long-Range Arena with the paper's sizes, on
    random tokens without padding. Without dropout, under which torch has no fused softmax on a CPU.

    `mode` is the forward pass without gradients, or training. A block trains forward and backward
    to its input and its parameters, an encoder takes a whole step with the optimiser; primal layers
    with the KSVD loss. `rank` goes to all attentions that have one."""

    what: str = "block"
    mode: Mode = "training"
    width: int = 64
    heads: int = 2
    rank: int = 20
    batch_size: int = 1
    dtype: DType = "float32"
    device: str = "cpu"
    threads: int = 2
    repeats: int = 5

    def __post_init__(self) -> None:
        check_choice("what", self.what, WHATS)
        check_choice("pass", self.mode, get_args(Mode))
        check_choice("dtype", self.dtype, get_args(DType))
        for name in ("width", "heads", "rank", "batch_size", "threads", "repeats"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected at least 1")
        if self.width % self.heads:
            raise ValueError(f"heads is {self.heads}; expected a divisor of width = {self.width}")

    def to_dict(self) -> dict[str, Any]:
        """As files have it, where the batch size is `batch`."""
        fields = dataclasses.asdict(self)
        return {"batch" if name == "batch_size" else name: v for name, v in fields.items()}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Settings:
        return cls(**{"batch_size" if name == "batch" else name: v for name, v in fields.items()})

    def words(self) -> list[str]:
        """As options of the command, `--pass` for `mode`."""
        fields = dataclasses.asdict(self)
        del fields["what"]
        fields["pass"] = fields.pop("mode")
        return command_words(fields)

    @property
    def layers(self) -> int:
        """How many attentions the model has."""
        return 1 if self.what == "block" else LAYERS

    @property
    def title(self) -> str:
        """What was measured, in words."""
        if self.what == "block":
            work = "Forward pass" if self.mode == "forward" else "Forward and backward pass"
            subject = f"{work} of an attention block"
        else:
            model = "a two-layer encoder classifier"
            model = model if self.what == "encoder" else f"the model of {self.what}"
            work = "Forward pass" if self.mode == "forward" else "Training step"
            subject = f"{work} of {model}"
        place = _count(self.threads, "thread") if self.device == "cpu" else self.device
        return (
            f"{subject}: width {self.width}, {_count(self.heads, 'head')}, rank {self.rank}, "
            f"batch {self.batch_size}, {self.dtype}, {place}"
        )


def command_words(fields: Mapping[str, Any]) -> list[str]:
    """`--batch-size 1` for every field that is given."""
    pairs = [(f"--{n.replace('_', '-')}", str(v)) for n, v in fields.items() if v is not None]
    return [word for pair in pairs for word in pair]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
