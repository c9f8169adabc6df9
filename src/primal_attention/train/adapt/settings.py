"""The settings of an adaptation, and what it found."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from torch import nn


@dataclass(frozen=True, kw_only=True)
class AdaptSettings:
    """layerwise: steps of each layer against its original, first. steps: of the whole model. lr: of
    AdamW, which warms up over a twentieth of the steps and falls linearly to zero. converted: the
    learning rate of the converted layers, in multiples of lr: they have more to learn than weights
    that were pretrained. hidden: weight of the blocks' errors beside that of the outputs. task:
    weight of the model's own loss, where the batches have labels. every: steps between evaluations;
    patience: evaluations without a better one after which it stops. one_by_one: whether attentions
    are converted one after another, the last first, with equal shares of the steps. remember:
    gigabytes for what is computed once for every batch; it changes the speed, not the result."""

    layerwise: int = 300
    steps: int = 500
    lr: float = 1e-4
    converted: float = 1.0
    hidden: float = 1.0
    task: float = 0.0
    every: int = 50
    patience: int = 5
    one_by_one: bool = False
    seed: int = 0
    remember: float = 2.0

    def __post_init__(self) -> None:
        for name in ("layerwise", "steps", "every", "patience"):
            number, least = getattr(self, name), 0 if name in ("layerwise", "steps") else 1
            if isinstance(number, bool) or not isinstance(number, int) or number < least:
                raise ValueError(f"{name} is {number!r}; expected an integer of at least {least}")
        if not isinstance(self.one_by_one, bool):
            raise ValueError(f"one_by_one is {self.one_by_one!r}; expected True or False")
        for name in ("lr", "converted", "hidden", "task", "remember"):
            number = getattr(self, name)
            if not 0 <= number < float("inf") or (name in ("lr", "converted") and number == 0):
                raise ValueError(f"{name} is {number!r}; expected a number above 0")


@dataclass(frozen=True)
class Evaluation:
    """On the batches that are held out. loss: the one that is trained, with the labels' part where
    it has one. quality: the user's own measure, if there is one. turn: of attentions that are
    converted one after another, the first is 1; 0 is all of them."""

    step: int
    loss: float
    outputs: float
    agreement: float
    blocks: tuple[float, ...]
    quality: float | None = None
    turn: int = 0


@dataclass
class Adaptation:
    """What an adaptation did: evaluations from the warm start to the end (step 0 has two: before
    and after the layers' own training), the step whose weights the model now has, and why it
    ended. model: the one that was adapted."""

    layers: tuple[str, ...]
    blocks: tuple[str, ...]
    original: float | None = None  # the user's measure of the original
    history: list[Evaluation] = field(default_factory=list)
    best: int = 0
    ended: str = ""
    model: nn.Module | None = field(default=None, repr=False, compare=False)

    @property
    def before(self) -> Evaluation:
        """As converted, before any training."""
        return self.history[0]

    @property
    def after(self) -> Evaluation:
        """That of the weights that the model has now."""
        turn = self.history[-1].turn
        own = [each for each in self.history if (each.turn, each.step) == (turn, self.best)]
        return min(own, key=lambda each: each.loss)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(dataclasses.replace(self, model=None))

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Adaptation:
        history = [
            Evaluation(**{**each, "blocks": tuple(each["blocks"])}) for each in value["history"]
        ]
        names = {name: tuple(value[name]) for name in ("layers", "blocks")}
        return cls(**{**value, **names, "history": history})
