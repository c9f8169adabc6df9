"""DeiT and Primal.+DeiT: a vision transformer of Hugging Face's transformers, built from its config
alone, in which the layers that are not named softmax are converted."""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

from torch import Tensor, nn

from ...attention import variational_
from ...convert import convert_
from ...runs.extras import needs_extra

_MODEL = "a vision transformer"


class VisionTransformer(nn.Module):
    """Logits (B, classes) of images (B, 3, size, size), read from the class token."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Tensor, padding: Tensor | None = None) -> Tensor:
        """Images of one size have no padding; it is ignored."""
        logits: Tensor = self.network(pixel_values=inputs).logits
        return logits


def build_vision_transformer(
    settings: Any, *, classes: int, size: int, patch: int
) -> VisionTransformer:
    """With random weights. `settings` has the fields of a run's configuration.

    The network is built with softmax throughout, then other layers are converted with the random
    start of their attention: all else is the same for every choice of attentions.
    """
    _check(settings)
    with needs_extra("hf", "vision transformers need"):
        transformers: Any = import_module("transformers")
    config = transformers.ViTConfig(
        image_size=size,
        patch_size=patch,
        num_labels=classes,
        num_hidden_layers=len(settings.attention),
        hidden_size=settings.width,
        num_attention_heads=settings.heads,
        intermediate_size=settings.feedforward,
        hidden_act=settings.activation,
        hidden_dropout_prob=settings.dropout,
        attention_probs_dropout_prob=settings.dropout,
        layer_norm_eps=1e-6,  # as DeiT has it
        # DeiT-Small's 0.02 at its width; the same start in a narrow network would hardly be one
        initializer_range=0.02 * math.sqrt(384 / settings.width),
    )
    network = transformers.ViTForImageClassification(config)
    places: dict[str, set[str]] = {}
    for i, name in enumerate(settings.attention):
        places.setdefault(name, set()).add(f"vit.layers.{i}.attention")
    options = settings.attention_options()
    places.pop("softmax", None)
    for name, own in places.items():
        convert_(
            network,
            attention=name,
            layers=lambda path, _, own=own: path in own,
            start="fresh",
            **options.get(name, {}),
        )
    model = VisionTransformer(network)
    return variational_(model) if settings.uncertainty == "readout" else model


def _check(settings: Any) -> None:
    """What a vision transformer cannot be, or has no place for, is refused."""
    for name, expected in (
        ("model", "transformer"), ("norm", "pre"), ("positions", "learned"),
    ):  # fmt: skip
        if (value := getattr(settings, name)) != expected:
            raise ValueError(f"{name} is {value!r}; expected {expected!r} in {_MODEL}")
    if settings.head != "mean":
        raise ValueError(
            f"head is {settings.head!r}; expected the default, 'mean', since {_MODEL} has a head "
            "of its own on the class token"
        )
    if settings.attention_options().get("softmax"):
        raise ValueError(f"options has 'softmax'; expected none for it in {_MODEL}")
