"""The settings of a run that learns what happens next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from ..files import FileConfig, SmallConfig
from ..settings import (
    NOT_NEGATIVE,
    EngineConfig,
    Rule,
    is_number,
    least,
    of_training,
    other,
    setting,
)

of_events = partial(setting, "Tasks events/...")
ROTATING = ("linear", "primal", "softmax")  # attentions that know times


@dataclass(frozen=True, kw_only=True)
class EventConfig(SmallConfig):
    """The settings of one run. `time_in` says where the model sees times: in the kernel, as input,
    in both, or nowhere ("order"). With `known_time` the time of the predicted event is given. The
    loss is that of the types plus `gap_weight` times that of the gaps, in nats for each event. A
    share `validation_fraction` of the training sequences chooses the epoch; the test set is read
    once.
    """

    EXAMPLE: ClassVar[str] = "events/stackoverflow"
    CAUSAL: ClassVar[bool] = True
    CHOICES: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **EngineConfig.CHOICES,
        "weights": ("tied",),
        "time_in": ("both", "input", "kernel", "order"),
        "start": ("random", "cooccurrence"),
    }
    RULES: ClassVar[Mapping[str, Rule]] = {
        **FileConfig.RULES,
        **dict.fromkeys(("mixture", "waves"), least(1)),
        "gap_weight": NOT_NEGATIVE,
        "validation_fraction": (lambda v: is_number(v) and 0 < v < 1, "a number in (0, 1)"),
        "known_time": (lambda v: isinstance(v, bool), "True or False"),
    }

    dropout: float = other(EngineConfig, "dropout", 0.0)

    epochs: int = other(EngineConfig, "epochs", 8)
    batch_size: int = other(EngineConfig, "batch_size", 8)
    lr: float = other(EngineConfig, "lr", 3e-3)
    weight_decay: float = other(EngineConfig, "weight_decay", 0.01)
    clip: float | None = other(EngineConfig, "clip", 1.0)
    schedule: str = other(EngineConfig, "schedule", "cosine")

    time_in: str = of_events("both", "Where the model sees times: both, input, kernel or order.")
    known_time: bool = of_events(
        False, "The time of the predicted event is known.", flag="--known-time"
    )
    mixture: int = of_events(8, "Log-normal parts of the gap's distribution.")
    waves: int = of_events(16, "Frequencies of times as input.")
    gap_weight: float = of_events(1.0, "Weight of the gaps in the loss.")
    start: str = of_events("random", "Embeddings start random, or at the cooccurrence of types.")
    validation_fraction: float = of_training(
        0.1, "Share of the training sequences that chooses the epoch."
    )

    def check_settings(self) -> None:
        super().check_settings()
        for name in self.attention:
            if name not in ROTATING:
                raise ValueError(
                    f"attention {name!r} does not know times; expected {', '.join(ROTATING)}"
                )

    def stem(self) -> str:
        return super().stem() + ("-known" if self.known_time else "")

    def model_options(self) -> dict[str, Any]:
        """Those of `EventModel`."""
        names = ("attention", "known_time", "width", "heads", "feedforward", "mixture")
        options = {name: getattr(self, name) for name in (*names, "waves", "dropout", "activation")}
        return options | {"time": self.time_in, "attention_options": self.attention_options()}
