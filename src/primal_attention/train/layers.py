"""What the primal layers of a model are while it learns: J by head, and Lambda."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..attention import PrimalAttention

QUANTILES = (0.1, 0.5, 0.9)

LayerRecord = dict[str, list[float | None]]


@torch.no_grad()
def primal_layers(model: nn.Module, calls: Iterable[Sequence[Any]]) -> dict[str, LayerRecord]:
    """{name: {"objective": ..., "lambda": ...}} of the primal layers, {} without any.

    "objective" has J of (11) for each head, the mean over the cases of all `calls` (arguments of
    the model), "lambda" the QUANTILES of the layer's Lambda over heads and directions. None stands
    for what is not finite. The model runs without dropout and draws no random numbers; its mode
    and what `ksvd_loss` reads are left as they were after a backward pass.
    """
    bare = getattr(model, "module", model)  # without the wrapper of Fabric
    layers = {n: m for n, m in bare.named_modules() if isinstance(m, PrimalAttention)}
    if not layers:
        return {}
    found: dict[str, list[Tensor]] = {name: [] for name in layers}
    with _recording(model, list(layers.values())):
        for call in calls:
            model(*call)
            for name, layer in layers.items():
                found[name].append(_objectives(layer))
    return {name: _record(layers[name], torch.cat(parts)) for name, parts in found.items() if parts}


@contextmanager
def _recording(model: nn.Module, layers: Sequence[PrimalAttention]) -> Iterator[None]:
    """While in it, the model computes as in eval mode, but primal layers record what J needs."""
    modes = {module: module.training for module in model.modules()}
    dropouts = [layer.dropout for layer in layers]
    model.eval()
    for layer in layers:
        layer.training, layer.dropout = True, 0.0
    try:
        yield
    finally:
        for layer, dropout in zip(layers, dropouts, strict=True):
            layer.dropout = dropout
            layer.ledger.release()
        for module, mode in modes.items():
            module.training = mode


def _objectives(layer: PrimalAttention) -> Tensor:
    """(cases, h): J of all forwards of a call; a case in which everything is masked is none."""
    parts = [entry.objectives()[entry.present()] for entry in layer.ledger.read()]
    layer.ledger.release()
    return torch.cat(parts)


def _record(layer: PrimalAttention, objectives: Tensor) -> LayerRecord:
    # on the CPU: not every device has float64
    lam = layer.sqrt_lambda.detach().cpu().double().square().flatten()
    at = torch.tensor(QUANTILES, dtype=lam.dtype, device="cpu")
    return {
        "objective": _numbers(objectives.cpu().double().mean(0)),
        "lambda": _numbers(torch.quantile(lam, at)),
    }


def _numbers(values: Tensor) -> list[float | None]:
    """Six digits, to keep lines short."""
    return [float(f"{v:.6g}") if math.isfinite(v) else None for v in values.tolist()]
