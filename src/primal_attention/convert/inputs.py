"""Whether a model can take the batches that it is given: asked before any work is done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..adapters.converted import evaluation
from .examples import call_model
from .positions import positions_of


def listed(batches: Iterable[Any]) -> list[Any]:
    """The batches; a sentence if they are one batch, which would be taken for as many as it has
    samples, or no batches at all."""
    if isinstance(batches, Tensor | Mapping | str | Path) or not isinstance(batches, Iterable):
        what = _described(batches) if isinstance(batches, Tensor | Mapping) else repr(batches)
        raise TypeError(f"batches is {what}; expected a list of batches, [batch, ...]")
    return list(batches)


def expect_inputs(model: nn.Module, batches: Sequence[Any]) -> Any:
    """What the model gives for the first batch; a sentence if it cannot take one of them."""
    for number, batch in enumerate(batches):
        if isinstance(batch, Mapping):
            _expect_names(model, batch)
            for name, tensor in batch.items():
                if name.endswith("input_ids") and isinstance(tensor, Tensor):
                    _expect_tokens(model, name, tensor, number)
    with evaluation(model), torch.no_grad():
        try:
            return call_model(model, batches[0])
        except Exception as error:
            said = str(error).strip().partition("\n")[0]
            raise ValueError(
                f"{type(model).__name__} cannot take the first batch, {_described(batches[0])}: "
                f"{said or type(error).__name__}"
            ) from error


def _expect_names(model: Any, batch: Mapping[str, Any]) -> None:
    """A model of transformers takes any keyword, and says little about one that is missing."""
    main = getattr(model, "main_input_name", None)
    if main is not None and not any(name == main or name.endswith("_embeds") for name in batch):
        raise ValueError(
            f"the batches have {', '.join(map(str, batch)) or 'nothing'}; expected {main}, which "
            f"{type(model).__name__} takes"
        )


def _expect_tokens(model: Any, name: str, tokens: Tensor, number: int) -> None:
    where = f"{name} of batch {number}"
    if tokens.is_floating_point() or tokens.is_complex() or tokens.dtype == torch.bool:
        raise ValueError(f"{where} is of type {tokens.dtype}; expected integers, numbers of tokens")
    if tokens.dim() < 2:
        raise ValueError(f"{where} has shape {tuple(tokens.shape)}; expected (samples, tokens)")
    words = _words(model)
    if words is not None and tokens.numel():
        least, most = int(tokens.min()), int(tokens.max())
        if least < 0 or most >= words:
            raise ValueError(
                f"{where} holds the token {least if least < 0 else most}; expected 0 to "
                f"{words - 1}, the words of {type(model).__name__}"
            )
    room = None if name.startswith("decoder") else positions_of(model)
    if room is not None and tokens.shape[-1] > room:
        raise ValueError(
            f"{where} has {tokens.shape[-1]} positions; expected at most {room}, which "
            f"{type(model).__name__} has learned (extend_positions_ gives it more)"
        )


def _words(model: Any) -> int | None:
    """Rows of the table of tokens of a model of transformers."""
    if not hasattr(model, "get_input_embeddings"):
        return None
    try:
        table = model.get_input_embeddings()
    except (NotImplementedError, AttributeError):
        return None
    return table.num_embeddings if isinstance(table, nn.Embedding) else None


def _described(batch: Any) -> str:
    """The shapes and types of a batch, as it is called."""
    if isinstance(batch, Mapping):
        return ", ".join(f"{name} {_described(each)}" for name, each in batch.items())
    if isinstance(batch, tuple | list):
        return ", ".join(map(_described, batch))
    if isinstance(batch, Tensor):
        return f"{tuple(batch.shape)} of {str(batch.dtype).removeprefix('torch.')}"
    return type(batch).__name__
