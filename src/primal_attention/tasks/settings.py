"""The settings that every run has, whatever it learns: one flat record, with a line for each."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Self

from ..names import check_choice, near, unknown

# Options of an attention that the model decides.
OPTIONS_OF_THE_MODEL = {"causal", "batch_first", "device", "dtype", "dropout"}
# those of `theory.features`, here without torch
FEATURE_MAPS = (
    "cosine", "elu", "softmax", "exp", "exp-orthogonal", "gaussian", "inverse_quadratic",
)  # fmt: skip
UNKNOWN_LENGTH = 2**14  # of sequences, while only options are checked
# Fields that say where and how fast a run computes, not what: a resumed run may differ in them.
PLACE_FIELDS = ("data_dir", "data", "test", "devices", "nodes", "accelerator", "checkpoint_seconds")

Rule = tuple[Callable[[Any], bool], str]  # what fits, in code and in words


def setting(panel: str, default: Any, text: str, *, flag: str = "") -> Any:
    """A field with its line of help, in a panel of `--help` ("": in none). `flag` is the option,
    where it is not named as the field: of a truth value, one that turns it round."""
    return field(default=default, metadata={"panel": panel, "help": text, "flag": flag})


aside, of_attention, of_model, of_training, of_machine = (
    partial(setting, panel) for panel in ("", "Attention", "Model", "Training", "Machine")
)


def other(base: type[Any], name: str, default: Any) -> Any:
    """The field of a base with another default."""
    metadata = next(f.metadata for f in dataclasses.fields(base) if f.name == name)
    return field(default=default, metadata=metadata)


def is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    return is_integer(value) or (isinstance(value, float) and math.isfinite(value))


def least(smallest: int) -> Rule:
    return lambda v: is_integer(v) and v >= smallest, f"an integer of at least {smallest}"


NOT_NEGATIVE: Rule = (lambda v: is_number(v) and v >= 0, "a number of at least 0")
SHARE: Rule = (lambda v: is_number(v) and 0 <= v < 1, "a number in [0, 1)")
LEAST_ONE_OR_NONE: Rule = (
    lambda v: v is None or (is_integer(v) and v >= 1),
    "an integer of at least 1 or None",
)


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """What the engine reads. A task brings a subclass with what its data, model and objective need.

    `attention` has one name per layer; `weights`, `feature_map`, `rank` and `eta` are those of the
    layers that are primal. `options` are further options of the attentions, by name:
    `{"performer": {"features": 128}}`. `clip` bounds the norm of the gradient, None does not. An
    epoch is a pass over the training set, or `epoch_steps` batches, followed by an evaluation.
    `batch_size` is that of all processes together. With `ema` the evaluated weights are averages
    over the steps, with this share of the past in every step. `precision` is in the words of
    Lightning.
    """

    EXAMPLE: ClassVar[str] = "uea/JapaneseVowels"
    CAUSAL: ClassVar[bool] = False  # the attentions of the model
    CHOICES: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "weights": ("data", "free", "tied"),
        "feature_map": FEATURE_MAPS,
        "activation": ("gelu", "relu"),
        "ksvd_square": ("sample", "batch"),
        "ksvd_growth": ("square", "log"),
        "optimizer": ("radam", "adam", "adamw"),
        "schedule": ("constant", "cosine", "linear", "root"),
        "precision": ("32-true", "64-true", "bf16-mixed", "bf16-true"),
        "accelerator": ("auto", "cpu", "cuda", "mps"),
    }
    RULES: ClassVar[Mapping[str, Rule]] = {
        "seed": least(0),
        **{name: least(1) for name in ("rank", "width", "heads", "feedforward")},
        **{name: least(1) for name in ("batch_size", "epochs", "devices", "nodes")},
        "warmup_steps": least(0),
        **dict.fromkeys(("eta", "weight_decay", "checkpoint_seconds"), NOT_NEGATIVE),
        "dropout": SHARE,
        "ema": (lambda v: v is None or (is_number(v) and 0 < v < 1), "a number in (0, 1) or None"),
        "lr": (lambda v: is_number(v) and v > 0, "a positive number"),
        "epoch_steps": LEAST_ONE_OR_NONE,
        "clip": (lambda v: v is None or (is_number(v) and v > 0), "a positive number or None"),
        "data_dir": (lambda v: v is None or isinstance(v, str), "a path or None"),
    }

    task: str
    seed: int = aside(0, "Random seed.")

    attention: tuple[str, ...] = aside(("primal", "primal"), "One name for each layer.")
    weights: str = of_attention("data", "Weights of primal attention: data, free or tied.")
    feature_map: str = of_attention("cosine", f"Feature map: {', '.join(FEATURE_MAPS)}.")
    rank: int = of_attention(20, "Number s of singular directions of a primal layer.")
    eta: float = of_attention(0.1, "Weight of the KSVD loss.")
    ksvd_square: str = of_attention(
        "sample", "The KSVD loss squares J of each sample, or its mean over the batch (batch)."
    )
    ksvd_growth: str = of_attention(
        "square",
        "The KSVD loss grows with the square of J, or with its logarithm (log), which new runs "
        "with positive features take.",
    )
    options: Mapping[str, Mapping[str, Any]] = field(
        default_factory=dict,
        metadata={"panel": "", "help": "Further options of attentions.", "flag": ""},
    )

    width: int = of_model(128, "Width of the model.")
    heads: int = of_model(8, "Attention heads of a layer.")
    feedforward: int = of_model(256, "Width of the feed-forward part of a layer.")
    dropout: float = of_model(0.1, "Dropout.")
    activation: str = of_model("gelu", "gelu or relu.")

    epochs: int = of_training(100, "Passes over the training set, each followed by an evaluation.")
    epoch_steps: int | None = of_training(
        None, "Steps of an epoch; none = one pass over the training set."
    )
    batch_size: int = of_training(16, "Series in a batch.")
    optimizer: str = of_training("adamw", "radam, adam or adamw.")
    lr: float = of_training(1e-3, "Learning rate.")
    weight_decay: float = of_training(0.0, "Weight decay.")
    clip: float | None = of_training(4.0, "Clip the gradient's norm at this value; none = never.")
    ema: float | None = of_training(
        None, "Evaluate averages of the weights over the steps, e.g. 0.999; none = off."
    )
    schedule: str = of_training(
        "constant", "Learning rate over time: constant, cosine, linear or root."
    )
    warmup_steps: int = of_training(0, "Steps over which the learning rate rises from zero.")

    data_dir: str | None = aside(None, "Folder with data sets.")
    precision: str = of_machine("32-true", "32-true, bf16-mixed, 64-true, ...")
    devices: int = of_machine(1, "Devices (processes) on each node.")
    nodes: int = of_machine(1, "Nodes.")
    accelerator: str = of_machine("auto", "auto, cpu, cuda, ...", flag="--device")
    checkpoint_seconds: float = of_machine(60.0, "Time between checkpoints.")

    def __post_init__(self) -> None:
        if isinstance(self.attention, list):  # as JSON has it
            object.__setattr__(self, "attention", tuple(self.attention))

    # -- checks ----------------------------------------------------------------------------------

    def validate(self) -> None:
        """Raise a ValueError that names the first wrong setting and what was expected."""
        from . import get_task

        if not isinstance(self.task, str):
            raise ValueError(f"task is {self.task!r}; expected a name")
        kind = get_task(self.task).settings
        if not isinstance(self, kind):
            raise ValueError(
                f"the settings are a {type(self).__name__}; expected a {kind.__name__} for the "
                f"task {self.task!r}"
            )
        self.check_settings()
        self._check_attention_builds()

    def check_settings(self) -> None:
        """The part of `validate` that does not depend on the task."""
        for name, choices in self.CHOICES.items():
            check_choice(name, getattr(self, name), choices)
        for name, (fits, expected) in self.RULES.items():
            if not fits(getattr(self, name)):
                raise ValueError(f"{name} is {getattr(self, name)!r}; expected {expected}")
        self._check_attention()
        for name, whole, other in (
            ("ksvd_square", "batch", "sample"),
            ("ksvd_growth", "log", "square"),
        ):
            if getattr(self, name) == whole and self.devices * self.nodes > 1:
                raise ValueError(
                    f"{name} is {whole!r} with {self.devices * self.nodes} processes; expected "
                    f"{other!r}, or one process that has the whole batch"
                )
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
            max_length=self.longest(),
            **({"causal": True} if self.CAUSAL else {}),
        )
        for name, options in dict(zip(self.attention, settings, strict=True)).items():
            try:
                with torch.random.fork_rng(devices=[]), torch.device("meta"):
                    make_attention(name, self.width, self.heads, **options)
            except (TypeError, ValueError) as error:
                raise ValueError(f"attention {name!r} cannot be made: {error}") from error
            except RuntimeError:  # a constructor that computes, which only a real device can
                continue

    # -- what follows from them ------------------------------------------------------------------

    def longest(self) -> int:
        """The length of the longest sequences, or a long one while nobody knows."""
        return UNKNOWN_LENGTH

    def attention_options(self) -> dict[str, dict[str, Any]]:
        """The options of the mechanisms, by name."""
        found = {name: dict(options) for name, options in self.options.items()}
        if "primal" in self.attention:
            found["primal"] = self.primal_options() | found.get("primal", {})
        return found

    def primal_options(self) -> dict[str, Any]:
        """The options of primal layers that have settings of their own."""
        return {"rank": self.rank, "weights": self.weights, "feature_map": self.feature_map}

    def where(self) -> dict[str, Any]:
        """The settings that say which data a run learns from, where the task does not."""
        return {}

    def stem(self) -> str:
        """What the name of a run folder begins with."""
        from ..runs.folder import folder_stem

        return folder_stem(self.task, self.attention)

    def resolved(self) -> Self:
        """With the data folder that the environment says, if any, as a full path."""
        from .folders import data_folder

        folder = data_folder(self.data_dir)
        return dataclasses.replace(self, data_dir=None if folder is None else str(folder.resolve()))

    # -- as documents ----------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {**dataclasses.asdict(self), "attention": list(self.attention)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`; unknown keys raise."""
        known = [field.name for field in dataclasses.fields(cls)]
        for key in values:
            if key not in known:
                raise ValueError(f"unknown setting {key!r}{near(key, known)}")
        if "task" not in values:
            raise ValueError(f"the settings lack a task; expected a name like {cls.EXAMPLE!r}")
        return cls(**values)

    def fingerprint(self) -> str:
        """A hash of what decides the result."""
        return digest(self.decisive())

    def decisive(self) -> dict[str, Any]:
        """What decides the result, without what has its default, so that a later version with more
        settings agrees."""
        plain = type(self)(task=self.task).to_dict()
        own = self.to_dict().items()
        return {k: v for k, v in own if k not in PLACE_FIELDS and v != plain[k]} | {
            "task": self.task
        }


def digest(values: Mapping[str, Any]) -> str:
    """A hash of settings that does not depend on their order."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
