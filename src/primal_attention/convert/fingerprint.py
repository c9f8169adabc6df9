"""What identifies a base model: its structure, and if need be its numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from .sites import find_sites


def tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and saved buffers by name; a tensor that is shared appears once."""
    saved = model.state_dict(keep_vars=True)
    named: dict[str, Tensor] = dict(model.named_parameters())
    named.update((name, b) for name, b in model.named_buffers() if name in saved)
    return named


def split(
    named: Mapping[str, Tensor], prefixes: Iterable[str]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The tensors inside the modules of these names, and the others."""
    starts = tuple(f"{prefix}." for prefix in prefixes)
    inside = {name: tensor for name, tensor in named.items() if name.startswith(starts)}
    return inside, {name: tensor for name, tensor in named.items() if name not in inside}


def structure(model: nn.Module, converted: Iterable[str]) -> str:
    """A hash of a model outside the modules of these names: its class, the names and shapes of its
    tensors, the heads of its attentions. The same before and after the conversion of those modules,
    and whatever the numbers are: a model may be trained further and is still the same base."""
    names = set(converted)
    _, outside = split(tensors(model), names)
    lines = [f"{name} {tuple(tensor.shape)}" for name, tensor in sorted(outside.items())]
    for site in find_sites(model, cross=True):
        if not names.intersection(site.names):
            lines.append(f"{site.name} {site.num_heads} heads")
    text = "\n".join([type(model).__name__, *lines])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def contents(named: Mapping[str, Tensor]) -> str:
    """A hash of the numbers themselves."""
    digest = hashlib.sha256()
    for name, tensor in sorted(named.items()):
        plain = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {plain.dtype} {tuple(plain.shape)}".encode())
        digest.update(plain.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:32]
