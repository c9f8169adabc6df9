"""The settings of a run that learns a language."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from ..files import FileConfig
from ..settings import LEAST_ONE_OR_NONE, EngineConfig, Rule, least, other, setting

of_text = partial(setting, "Tasks lm/...")
ROTATING = ("linear", "primal", "softmax")  # attentions that know positions by rotation


@dataclass(frozen=True, kw_only=True)
class LanguageConfig(FileConfig):
    """The settings of one run. A text is cut into pieces of `length` tokens, in training and in
    evaluation. `vocabulary` bounds the number of tokens, the most frequent ones of the training
    text: perplexities of different vocabularies do not compare. `place` is what tells positions:
    "rotary" turns features, "learned" and "sinusoidal" add rows of a table.
    """

    EXAMPLE: ClassVar[str] = "lm/text"
    CAUSAL: ClassVar[bool] = True
    CHOICES: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **EngineConfig.CHOICES,
        "weights": ("free", "tied"),
        "place": ("rotary", "learned", "sinusoidal"),
        "tokens": ("words", "characters"),
        "start": ("random", "cooccurrence"),
    }
    RULES: ClassVar[Mapping[str, Rule]] = {
        **FileConfig.RULES,
        "length": least(2),
        "window": least(1),
        "vocabulary": LEAST_ONE_OR_NONE,
    }

    weights: str = other(EngineConfig, "weights", "tied")
    feature_map: str = other(EngineConfig, "feature_map", "elu")
    rank: int = other(EngineConfig, "rank", 16)
    eta: float = other(EngineConfig, "eta", 0.0)

    heads: int = other(EngineConfig, "heads", 4)
    feedforward: int = other(EngineConfig, "feedforward", 512)

    epochs: int = other(EngineConfig, "epochs", 5)
    batch_size: int = other(EngineConfig, "batch_size", 16)
    lr: float = other(EngineConfig, "lr", 2e-3)
    weight_decay: float = other(EngineConfig, "weight_decay", 0.01)
    clip: float | None = other(EngineConfig, "clip", 1.0)
    schedule: str = other(EngineConfig, "schedule", "cosine")
    warmup_steps: int = other(EngineConfig, "warmup_steps", 100)

    tokens: str = of_text("words", "Tokens are words between spaces, or characters.")
    vocabulary: int | None = of_text(None, "Most tokens that are known; none = all of the text.")
    length: int = of_text(128, "Tokens of a piece of text.")
    place: str = of_text("rotary", "What tells positions: rotary, learned or sinusoidal.")
    start: str = of_text("random", "Embeddings start random, or at the cooccurrence of tokens.")
    window: int = of_text(5, "Distance of tokens that counts as cooccurrence.")

    def check_settings(self) -> None:
        super().check_settings()
        rotary = self.place == "rotary"
        for name in self.attention:
            if rotary and name not in ROTATING:
                raise ValueError(
                    f"attention {name!r} knows no rotation; expected {', '.join(ROTATING)}, or "
                    "place='learned'"
                )
        if rotary and "primal" in self.attention and self.weights != "tied":
            raise ValueError(
                f"weights is {self.weights!r} with place='rotary'; expected 'tied', or "
                "place='learned'"
            )

    def longest(self) -> int:
        return self.length

    def model_options(self) -> dict[str, Any]:
        """Those of `LanguageModel`."""
        names = ("attention", "width", "heads", "feedforward", "dropout", "activation")
        return {name: getattr(self, name) for name in names} | {
            "attention_options": self.attention_options(),
            "positions": self.place,
            "max_length": self.length,
        }
