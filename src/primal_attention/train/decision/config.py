"""The settings of a run that learns to act from recorded episodes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..config import PLACE_FIELDS, RunConfig, check_keys, digest

# Fields that both kinds of runs have, with the same meaning.
_SHARED = {f.name for f in dataclasses.fields(RunConfig)}


@dataclass(frozen=True, kw_only=True)
class DecisionConfig:
    """The settings of one run. The defaults are the paper's: three layers of width 256 with 4
    heads, 20 steps of context, the last layer primal with free weights.

    An epoch is `epoch_steps` batches, followed by `episodes` episodes in the environment, in which
    the agent is asked for the return `target` (None: the environment's). With conditioned=False the
    model sees no returns: behaviour cloning. `stream` lets the agent go on from the layers' states
    instead of computing its window anew.
    """

    task: str
    seed: int = 0

    attention: tuple[str, ...] = ("softmax", "softmax", "primal")
    weights: str = "free"
    rank: int = 32
    eta: float = 0.05
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    conditioned: bool = True
    context: int = 20
    width: int = 256
    heads: int = 4
    feedforward: int = 1024
    dropout: float = 0.1
    activation: str = "relu"

    optimizer: str = "adamw"
    lr: float = 1e-3
    weight_decay: float = 1e-4
    batch_size: int = 64
    epochs: int = 10
    epoch_steps: int = 1000
    clip: float | None = 0.25
    schedule: str = "constant"
    warmup_steps: int = 0

    episodes: int = 10
    target: float | None = None
    stream: bool = False

    data_dir: str | None = None
    accelerator: str = "auto"
    checkpoint_seconds: float = 60.0

    def __post_init__(self) -> None:
        if isinstance(self.attention, list):  # as JSON has it
            object.__setattr__(self, "attention", tuple(self.attention))

    def validate(self) -> None:
        """Raise a ValueError that names the first wrong setting and what was expected."""
        from ...attention import attention_info
        from ...tasks.rl import get_rl_task

        if not isinstance(self.task, str):
            raise ValueError(f"task is {self.task!r}; expected a name")
        get_rl_task(self.task)
        for name in ("context", "episodes"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} is {value!r}; expected an integer of at least 1")
        if self.epoch_steps is None:
            raise ValueError("epoch_steps is None; expected an integer of at least 1")
        target = self.target
        if target is not None and not (isinstance(target, int | float) and math.isfinite(target)):
            raise ValueError(f"target is {target!r}; expected a number or None")
        self.engine().check_settings()
        if self.weights == "data":
            raise ValueError("weights is 'data'; expected 'free' or 'tied', the causal ones")
        for name in self.attention:
            info = attention_info(name)
            if not info.causal or (self.stream and not info.streaming):
                kind = "stream" if info.causal else "have a causal form"
                raise ValueError(f"attention {name!r} does not {kind}; expected one that does")

    def engine(self) -> RunConfig:
        """The settings that the engine's own parts read."""
        own = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return RunConfig(**{name: value for name, value in own.items() if name in _SHARED})

    def attention_options(self) -> dict[str, dict[str, Any]]:
        """The options of the mechanisms, by name."""
        options = self.engine().attention_options()
        for name in ("rank_multi", "anchor_rule"):  # of data weights alone
            options.get("primal", {}).pop(name, None)
        return options

    def resolved(self) -> DecisionConfig:
        """With the data folder that the environment says, if any, as a full path."""
        return dataclasses.replace(self, data_dir=self.engine().resolved().data_dir)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {**dataclasses.asdict(self), "attention": list(self.attention)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> DecisionConfig:
        """The inverse of `to_dict`; unknown keys raise."""
        check_keys(cls, values, "rl/hopper-medium")
        return cls(**values)

    def fingerprint(self) -> str:
        """A hash of what decides the result."""
        return digest({k: v for k, v in self.to_dict().items() if k not in PLACE_FIELDS})
