"""The settings of a run that learns to act from recorded episodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from ..settings import PLACE_FIELDS, EngineConfig, Rule, is_number, least, other, setting

of_acting = partial(setting, "Tasks rl/...")


@dataclass(frozen=True, kw_only=True)
class DecisionConfig(EngineConfig):
    """The settings of one run. The defaults are the paper's: three layers of width 256 with 4
    heads, 20 steps of context, the last layer primal with free weights.

    An epoch is `epoch_steps` batches, followed by `episodes` episodes in the environment, in which
    the agent is asked for the return `target` (None: the environment's). With conditioned=False the
    model sees no returns: behaviour cloning. `stream` lets the agent go on from the layers' states
    instead of computing its window anew.
    """

    EXAMPLE: ClassVar[str] = "rl/hopper-medium"
    CAUSAL: ClassVar[bool] = True
    # fields that first runs did not have
    LATER: ClassVar[tuple[str, ...]] = (
        "ema",
        "feature_map",
        "ksvd_growth",
        "ksvd_square",
        "precision",
    )
    RULES: ClassVar[Mapping[str, Rule]] = {
        **EngineConfig.RULES,
        **dict.fromkeys(("context", "episodes", "epoch_steps"), least(1)),
        "target": (lambda v: v is None or is_number(v), "a number or None"),
        **dict.fromkeys(
            ("conditioned", "stream"), (lambda v: isinstance(v, bool), "True or False")
        ),
    }

    attention: tuple[str, ...] = other(EngineConfig, "attention", ("softmax", "softmax", "primal"))
    weights: str = other(EngineConfig, "weights", "free")
    rank: int = other(EngineConfig, "rank", 32)
    eta: float = other(EngineConfig, "eta", 0.05)

    conditioned: bool = of_acting(True, "Behaviour cloning: without returns.", flag="--cloning")
    context: int = of_acting(20, "Steps that the model sees.")
    width: int = other(EngineConfig, "width", 256)
    heads: int = other(EngineConfig, "heads", 4)
    feedforward: int = other(EngineConfig, "feedforward", 1024)
    activation: str = other(EngineConfig, "activation", "relu")

    weight_decay: float = other(EngineConfig, "weight_decay", 1e-4)
    batch_size: int = other(EngineConfig, "batch_size", 64)
    epochs: int = other(EngineConfig, "epochs", 10)
    epoch_steps: int = other(EngineConfig, "epoch_steps", 1000)
    clip: float | None = other(EngineConfig, "clip", 0.25)

    episodes: int = of_acting(10, "Episodes of an evaluation.")
    target: float | None = of_acting(None, "Return to ask for.")
    stream: bool = of_acting(False, "Evaluate by streams, not by windows.")

    def check_settings(self) -> None:
        from ...attention import attention_info

        super().check_settings()
        if self.weights == "data":
            raise ValueError("weights is 'data'; expected 'free' or 'tied', the causal ones")
        for name in self.attention:
            info = attention_info(name)
            if not info.causal or (self.stream and not info.streaming):
                kind = "stream" if info.causal else "have a causal form"
                raise ValueError(f"attention {name!r} does not {kind}; expected one that does")

    def longest(self) -> int:
        return 3 * self.context  # return, state and action

    def stem(self) -> str:
        return super().stem() + ("" if self.conditioned else "-cloning")

    def decisive(self) -> dict[str, Any]:
        """With the defaults of the settings that there were from the first version on."""
        first = self.to_dict().items()
        kept = {k: v for k, v in first if k not in (*PLACE_FIELDS, *self.LATER)}
        return kept | super().decisive()
