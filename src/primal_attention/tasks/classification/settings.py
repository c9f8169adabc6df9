"""The settings of a run that learns classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ...names import unknown
from ..settings import (
    LEAST_ONE_OR_NONE,
    NOT_NEGATIVE,
    SHARE,
    UNKNOWN_LENGTH,
    EngineConfig,
    Rule,
    aside,
    is_number,
    least,
    of_attention,
    of_model,
    of_training,
)


@dataclass(frozen=True, kw_only=True)
class RunConfig(EngineConfig):
    """The settings of one run.

    protocol "holdout" selects the epoch on a validation split of the training set and uses the test
    set once, or with `keep="last"` takes the last epoch, whatever the split says; "paper" reports
    the best test epoch. `model="net"`, for time series, is a `SeriesNet`: convolutions before
    attention. Longer sequences are cut to `max_length`, or to
    the longest of the training set. A batch of "random" cases is as long as its longest; batching
    "bucket" takes cases of similar length, "fixed" (tokens) pads every batch to the greatest
    length. `augment` and `mixup` (the parameter of its beta distribution, 0 = off) change images
    in training.

    With `uncertainty="readout"` the last primal layer's W_c is a Gaussian, see `variational_`, and
    the loss has its KL divided by the training cases.

    `score_dropout`, `projection_start`, `direction_start`, `norm`, `padding`, `token_start`,
    `pooled`, `anchor_rule`, `ksvd_square` and `selection_epochs` can be those of the published
    code; the recipe "paper" takes them.
    """

    CHOICES: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **EngineConfig.CHOICES,
        "protocol": ("holdout", "paper"),
        "model": ("transformer", "net"),
        "keep": ("best", "last"),
        "anchor_rule": ("sample", "mean", "paper"),
        "projection_start": ("xavier", "linear"),
        "direction_start": ("orthogonal", "unit"),
        "norm": ("post", "pre", "post-last"),
        "padding": ("ignored", "seen"),
        "pooled": ("valid", "padded"),
        "token_start": ("unit", "small"),
        "selection_epochs": ("every", "paper"),
        "positions": ("learned", "sinusoidal", "none"),
        "head": ("mean", "flatten", "mlp", "attention"),
        "normalise": ("channel", "none"),
        "augment": ("none", "light", "deit"),
        "batching": ("random", "bucket", "fixed"),
        "uncertainty": ("none", "readout"),
        "track": ("none", "transport"),
    }
    RULES: ClassVar[Mapping[str, Rule]] = {
        **EngineConfig.RULES,
        "rank_multi": least(1),
        "score_dropout": (lambda v: v is None or SHARE[0](v), f"{SHARE[1]} or None"),
        "max_length": LEAST_ONE_OR_NONE,
        "mixup": NOT_NEGATIVE,
        "label_smoothing": SHARE,
        "validation_fraction": (
            lambda v: is_number(v) and 0 < v < 1,
            "a number between 0 and 1",
        ),
    }

    recipe: str = aside("default", "Settings to start from: default, transformer or paper.")
    protocol: str = aside(
        "holdout",
        "holdout: choose the epoch on a validation split, use the test set once. "
        "paper: report the best test epoch.",
    )

    rank_multi: int = of_attention(
        10, "Anchors of data weights: rank times this many rows of the sequence."
    )
    anchor_rule: str = of_attention(
        "sample", "How anchors are taken from a sequence: sample, mean, or paper (rounded down)."
    )
    score_dropout: float | None = of_attention(
        None, "Dropout of the scores of primal layers; none = that of the model."
    )
    projection_start: str = of_attention(
        "xavier", "Start of W_q, W_k, W_v, W_o: xavier, biases 0; or linear, as torch has it."
    )
    direction_start: str = of_attention(
        "orthogonal", "Start of W_e, W_r: orthogonal, or of norm 1 in every head (unit)."
    )

    uncertainty: str = of_attention(
        "none", "none, or readout: a Gaussian on the readout of the last primal layer."
    )

    model: str = of_model(
        "transformer", "transformer, or net: convolutions before attention, for time series."
    )
    norm: str = of_model(
        "post",
        "Layer norm before (pre) or after (post) each part; post-last: one more at the end.",
    )
    positions: str = of_model("learned", "learned, sinusoidal or none.")
    head: str = of_model(
        "mean", "Class scores from the mean over positions (mean, mlp) or from all (flatten)."
    )
    normalise: str = of_model(
        "channel", "Statistics of the training set: per channel (channel) or none."
    )
    padding: str = of_model(
        "ignored", "Positions beyond the end of a series: ignored, or zeros that are seen (seen)."
    )
    pooled: str = of_model(
        "valid", "The mean over positions divides by the valid ones, or by max_length (padded)."
    )
    token_start: str = of_model(
        "unit", "Start of token rows: of unit variance, or with a deviation of 0.02 (small)."
    )
    max_length: int | None = of_model(
        None, "Longer sequences are cut to it; none = the longest for training."
    )

    batching: str = of_training(
        "random", "random cases, of similar length (bucket), or all padded to one (fixed)."
    )
    label_smoothing: float = of_training(0.0, "Share of the target spread over all classes.")
    augment: str = of_training("none", "Random changes of images: none, light or deit.")
    mixup: float = of_training(0.0, "Mix images: parameter of the beta distribution, 0 = off.")
    keep: str = of_training(
        "best", "The weights that count: of the best epoch, or the last (protocol holdout)."
    )
    validation_fraction: float = of_training(
        0.2, "Part of the training set held out (protocol holdout)."
    )
    track: str = of_training(
        "none", "Figures after every epoch, in metrics.jsonl: transport (of attentions), or none."
    )
    selection_epochs: str = of_training(
        "every", "Epochs to choose from: every one, or the first, the even and the last (paper)."
    )

    def validate(self) -> None:
        from .. import get_task

        for name in ("task", "recipe"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"{name} is {getattr(self, name)!r}; expected a name")
        recipes = get_task(self.task).recipes
        if self.recipe not in recipes:
            raise ValueError(unknown(f"recipe of task {self.task!r}:", self.recipe, recipes))
        super().validate()

    def longest(self) -> int:
        return self.max_length or UNKNOWN_LENGTH

    def primal_options(self) -> dict[str, Any]:
        own = {"rank_multi": self.rank_multi, "anchor_rule": self.anchor_rule}
        if self.score_dropout is not None:
            own["dropout"] = self.score_dropout
        return super().primal_options() | own
