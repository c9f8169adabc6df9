"""Everything that decides the result of a run, in one flat record."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..names import check_choice, near, unknown

# Options of an attention that the model decides.
OPTIONS_OF_THE_MODEL = {"causal", "batch_first", "device", "dtype", "dropout"}
UNKNOWN_LENGTH = 2**14  # of sequences, while only options are checked
FEATURE_MAPS = ("cosine", "elu", "softmax", "exp", "exp-orthogonal")
# Fields that say where and how fast a run computes, not what: a resumed run may differ in them.
PLACE_FIELDS = ("data_dir", "devices", "nodes", "accelerator", "checkpoint_seconds")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """The settings of one run. `attention` has one name per layer; `weights`, `feature_map` (None:
    the usual one of the weights), `rank`, `rank_multi`, `anchor_rule` and `eta` are those of the
    layers that are primal. `options` are further options of the attentions, by name:
    `{"performer": {"features": 128}}`.

    protocol "holdout" selects the epoch on a validation split of the training set and uses the test
    set once; "paper" reports the best test epoch. `clip` bounds the norm of the gradient, None does
    not. An epoch is a pass over the training set, or `epoch_steps` batches, followed by an
    evaluation. Longer sequences are cut to `max_length`, or to the longest of the training set.
    A batch of "random" cases is as long as its longest; batching "bucket" takes cases of similar
    length, "fixed" (tokens) pads every batch to the greatest length. `batch_size` is that of all
    processes together. `augment` and `mixup` (the parameter of its beta distribution, 0 = off)
    change images in training. With `ema` the evaluated weights are averages over the steps, with
    this share of the past in every step. `precision` is in the words of Lightning.
    """

    task: str
    recipe: str = "default"
    protocol: str = "holdout"
    seed: int = 0

    attention: tuple[str, ...] = ("primal", "primal")
    weights: str = "data"
    feature_map: str | None = "cosine"
    rank: int = 20
    rank_multi: int = 10
    anchor_rule: str = "sample"
    eta: float = 0.1
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    width: int = 128
    heads: int = 8
    feedforward: int = 256
    dropout: float = 0.1
    norm: str = "post"
    activation: str = "gelu"
    positions: str = "learned"
    head: str = "mean"
    normalise: str = "channel"
    max_length: int | None = None

    optimizer: str = "adamw"
    lr: float = 1e-3
    weight_decay: float = 0.0
    batch_size: int = 16
    batching: str = "random"
    epochs: int = 100
    epoch_steps: int | None = None
    clip: float | None = 4.0
    label_smoothing: float = 0.0
    augment: str = "none"
    mixup: float = 0.0
    ema: float | None = None
    schedule: str = "constant"
    warmup_steps: int = 0
    validation_fraction: float = 0.2

    data_dir: str | None = None
    precision: str = "32-true"
    devices: int = 1
    nodes: int = 1
    accelerator: str = "auto"
    checkpoint_seconds: float = 60.0

    def __post_init__(self) -> None:
        if isinstance(self.attention, list):  # as JSON has it
            object.__setattr__(self, "attention", tuple(self.attention))

    def validate(self) -> None:
        """Raise a ValueError that names the first wrong setting and what was expected."""
        from ..tasks import get_task

        for name in ("task", "recipe"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"{name} is {getattr(self, name)!r}; expected a name")
        recipes = get_task(self.task).recipes
        if self.recipe not in recipes:
            raise ValueError(unknown(f"recipe of task {self.task!r}:", self.recipe, recipes))
        self.check_settings()
        self._check_attention_builds()

    def check_settings(self) -> None:
        """The part of `validate` that does not depend on the task."""
        for name, choices in CHOICES.items():
            check_choice(name, getattr(self, name), choices)
        for name, (fits, expected) in _RULES.items():
            if not fits(getattr(self, name)):
                raise ValueError(f"{name} is {getattr(self, name)!r}; expected {expected}")
        self._check_attention()
        if self.width % self.heads:
            raise ValueError(
                f"heads is {self.heads}; expected a divisor of the width, {self.width}"
            )

    def _check_attention(self) -> None:
        from ..attention import attention_info

        if not isinstance(self.attention, tuple) or not self.attention:
            raise ValueError(
                f"attention is {self.attention!r}; expected one name per layer, such as "
                "('softmax', 'primal')"
            )
        for name in self.attention:
            attention_info(name)
        self._check_options()

    def _check_options(self) -> None:
        from ..attention import attention_info

        if not isinstance(self.options, Mapping):
            raise ValueError(f"options is {self.options!r}; expected options by attention name")
        for name, options in self.options.items():
            check_choice("a key of options", name, sorted(set(self.attention)))
            if not isinstance(options, Mapping):
                raise ValueError(f"options[{name!r}] is {options!r}; expected options by name")
            known = attention_info(name).options.keys() - OPTIONS_OF_THE_MODEL
            if name == "primal":  # they have settings of their own
                known -= {"weights", "rank", "rank_multi", "anchor_rule"}
            for option in options:
                if option not in known:
                    what = f"option of attention {name!r}:"
                    raise ValueError(unknown(what, option, sorted(known)))

    def _check_attention_builds(self) -> None:
        """Make every attention once, without memory, so that a wrong option is told before a run
        has a folder."""
        import torch

        from ..attention import make_attention
        from ..models.options import attention_settings

        settings = attention_settings(
            self.attention,
            self.attention_options(),
            dropout=self.dropout,
            max_length=self.max_length or UNKNOWN_LENGTH,
        )
        for name, options in dict(zip(self.attention, settings, strict=True)).items():
            try:
                with torch.random.fork_rng(devices=[]), torch.device("meta"):
                    make_attention(name, self.width, self.heads, **options)
            except (TypeError, ValueError) as error:
                raise ValueError(f"attention {name!r} cannot be made: {error}") from error
            except RuntimeError:  # a constructor that computes, which only a real device can
                continue

    def resolved(self) -> RunConfig:
        """With the data folder that the environment says, if any, as a full path."""
        from ..tasks.folders import data_folder

        folder = data_folder(self.data_dir)
        return dataclasses.replace(self, data_dir=None if folder is None else str(folder.resolve()))

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {**dataclasses.asdict(self), "attention": list(self.attention)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunConfig:
        """The inverse of `to_dict`; unknown keys raise."""
        check_keys(cls, values, "uea/JapaneseVowels")
        return cls(**values)

    def fingerprint(self) -> str:
        """A hash of what decides the result."""
        plain = type(self)(task=self.task).to_dict()
        # without what has its default, so that a later version with more settings agrees
        decisive = {
            k: v for k, v in self.to_dict().items() if k not in PLACE_FIELDS and v != plain[k]
        } | {"task": self.task}
        return digest(decisive)

    def attention_options(self) -> dict[str, dict[str, Any]]:
        """The options of the mechanisms, by name."""
        primal = {
            "rank": self.rank,
            "weights": self.weights,
            "feature_map": self.feature_map,
            "rank_multi": self.rank_multi,
            "anchor_rule": self.anchor_rule,
        }
        found = {name: dict(options) for name, options in self.options.items()}
        if "primal" in self.attention:
            found["primal"] = primal | found.get("primal", {})
        return found


def check_keys(kind: type[Any], values: Mapping[str, Any], task: str) -> None:
    """Raise unless all keys are fields of a dataclass of settings and there is a task, such as
    `task`."""
    known = [field.name for field in dataclasses.fields(kind)]
    for key in values:
        if key not in known:
            raise ValueError(f"unknown setting {key!r}{near(key, known)}")
    if "task" not in values:
        raise ValueError(f"the settings lack a task; expected a name like {task!r}")


def digest(values: Mapping[str, Any]) -> str:
    """A hash of settings that does not depend on their order."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_integer(value) or (isinstance(value, float) and math.isfinite(value))


def _least(least: int) -> tuple[Callable[[Any], bool], str]:
    return lambda v: _is_integer(v) and v >= least, f"an integer of at least {least}"


_NOT_NEGATIVE = (lambda v: _is_number(v) and v >= 0, "a number of at least 0")

_LEAST_ONE_OR_NONE = (
    lambda v: v is None or (_is_integer(v) and v >= 1),
    "an integer of at least 1 or None",
)

_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "seed": _least(0),
    **{name: _least(1) for name in ("rank", "rank_multi", "width", "heads", "feedforward")},
    **{name: _least(1) for name in ("batch_size", "epochs", "devices", "nodes")},
    "warmup_steps": _least(0),
    **dict.fromkeys(("eta", "weight_decay", "mixup", "checkpoint_seconds"), _NOT_NEGATIVE),
    "dropout": (lambda v: _is_number(v) and 0 <= v < 1, "a number in [0, 1)"),
    "validation_fraction": (lambda v: _is_number(v) and 0 < v < 1, "a number between 0 and 1"),
    "label_smoothing": (lambda v: _is_number(v) and 0 <= v < 1, "a number in [0, 1)"),
    "ema": (lambda v: v is None or (_is_number(v) and 0 < v < 1), "a number in (0, 1) or None"),
    "lr": (lambda v: _is_number(v) and v > 0, "a positive number"),
    **dict.fromkeys(("epoch_steps", "max_length"), _LEAST_ONE_OR_NONE),
    "clip": (lambda v: v is None or (_is_number(v) and v > 0), "a positive number or None"),
    "feature_map": (lambda v: v is None or v in FEATURE_MAPS, f"None or one of {FEATURE_MAPS}"),
    "data_dir": (lambda v: v is None or isinstance(v, str), "a path or None"),
}

CHOICES: dict[str, tuple[str, ...]] = {
    "protocol": ("holdout", "paper"),
    "weights": ("data", "free", "tied"),
    "anchor_rule": ("sample", "mean"),
    "norm": ("post", "pre"),
    "activation": ("gelu", "relu"),
    "positions": ("learned", "sinusoidal", "none"),
    "head": ("mean", "flatten", "mlp"),
    "normalise": ("channel", "none"),
    "optimizer": ("radam", "adam", "adamw"),
    "augment": ("none", "light", "deit"),
    "batching": ("random", "bucket", "fixed"),
    "schedule": ("constant", "cosine", "linear"),
    "precision": ("32-true", "64-true", "bf16-mixed", "bf16-true"),
    "accelerator": ("auto", "cpu", "cuda", "mps"),
}
