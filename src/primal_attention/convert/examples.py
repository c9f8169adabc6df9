"""Inputs of a model: how a batch is called, and a small one that is made up."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

LENGTH = 8


def call_model(model: nn.Module, batch: Any) -> Any:
    """A batch is a tensor, a tuple of arguments or a mapping of keywords."""
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(*batch) if isinstance(batch, tuple | list) else model(batch)


def example_of(model: Any) -> dict[str, Tensor]:
    """A batch of one small sample for a Hugging Face model, by the names of its arguments."""
    config: Any = getattr(model, "config", None)
    if not hasattr(config, "to_dict"):
        raise ValueError(
            f"{type(model).__name__} is no model of transformers; expected example=, one batch of "
            "it, on which its attentions are checked before they are converted"
        )
    first = next(model.parameters())
    known = inspect.signature(model.forward).parameters
    main = model.main_input_name
    wanted = {main} | ({"decoder_input_ids"} if config.is_encoder_decoder else set())
    if hasattr(config, "vision_config"):
        wanted.add("pixel_values")
    made: dict[str, Tensor] = {}
    for name in sorted(wanted & set(known)):
        shape = _shape(name, config)
        if shape is None:
            raise ValueError(
                f"{type(model).__name__} takes {name}, for which no example is known; expected "
                "example=, one batch of the model"
            )
        if name.endswith("input_ids"):
            words = config.get_text_config().vocab_size
            made[name] = torch.randint(min(5, words - 1), words, shape, device=first.device)
        else:
            made[name] = torch.randn(shape, device=first.device).to(first.dtype)
    return made


def _shape(name: str, config: Any) -> tuple[int, ...] | None:
    """The shape of one small sample."""
    if name.endswith("input_ids"):
        return (1, LENGTH)
    if name == "pixel_values":
        vision = getattr(config, "vision_config", config)
        size = vision.image_size
        height, width = size if isinstance(size, list | tuple) else (size, size)
        return (1, getattr(vision, "num_channels", 3), height, width)
    if name == "input_values":
        return (1, 4 * int(getattr(config, "inputs_to_logits_ratio", 400)) + 400)
    if name == "input_features" and hasattr(config, "max_source_positions"):
        return (1, config.num_mel_bins, 2 * config.max_source_positions)
    if name == "past_values":
        return (1, config.context_length, getattr(config, "num_input_channels", 1))
    return None
