"""Singular values of every attention matrix of a model: figure 1 of the paper for any model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..runs.tables import aligned
from .capture import Found, find_attentions, run
from .kernels import head_values
from .readers import Call, Seen

Array = npt.NDArray[np.float64]

SHARES = (0.90, 0.95, 0.99)


@dataclass(frozen=True, eq=False)
class LayerSpectrum:
    """One attention: `sigma (heads, inputs, k)` descending, zero beyond a matrix's own rank, and
    `energy (heads, inputs)` = `||K||_F^2`.

    `method`: "factored" (primal: exact, K never formed), "exact" (SVD of K), "randomised" (the
    leading k only), or several where inputs differ in size.
    """

    name: str
    kind: str
    method: str
    sigma: Array
    energy: Array

    @property
    def heads(self) -> int:
        return int(self.sigma.shape[0])

    @property
    def inputs(self) -> int:
        return int(self.sigma.shape[1])

    def explained_variance(self) -> Array:
        """`sum_{i<=k} sigma_i^2 / ||K||_F^2 (heads, inputs, k)`; 1 for K = 0."""
        total = self.energy[..., None]
        share = np.cumsum(self.sigma**2, -1) / np.where(total > 0, total, 1.0)
        return np.where(total > 0, np.minimum(share, 1.0), 1.0)

    def effective_rank(self) -> Array:
        """`exp(-sum p_i log p_i)`, `p_i = sigma_i / sum sigma (heads, inputs)` (Roy & Vetterli
        2007); 0 for K = 0. Of a randomised spectrum: of the leading values alone."""
        total = self.sigma.sum(-1, keepdims=True)
        share = self.sigma / np.where(total > 0, total, 1.0)
        entropy = -(share * np.log(np.where(share > 0, share, 1.0))).sum(-1)
        return np.where(total[..., 0] > 0, np.exp(entropy), 0.0)

    def rank_for(self, share: float) -> Array:
        """The least k that explains a share of the variance, (heads, inputs); NaN where the leading
        values of a randomised spectrum do not suffice."""
        if not 0 < share <= 1:
            raise ValueError(f"share is {share}; expected a number in (0, 1]")
        reached = self.explained_variance() >= share - 1e-12
        first = reached.argmax(-1) + 1.0
        return np.where(reached.any(-1), first, np.nan)

    def curve(self) -> tuple[Array, Array]:
        """Mean and deviation of the explained variance over heads and inputs, each (k,)."""
        found = self.explained_variance().reshape(-1, self.sigma.shape[-1])
        return found.mean(0), _deviation(found)

    def to_dict(self) -> dict[str, Any]:
        mean, deviation = self.curve()
        rank = self.effective_rank()
        return {
            "name": self.name,
            "kind": self.kind,
            "method": self.method,
            "heads": self.heads,
            "inputs": self.inputs,
            "effective_rank": _summary(rank),
            "effective_rank_by_head": rank.mean(1).tolist(),
            "rank_for": {f"{share:.2f}": _summary(self.rank_for(share)) for share in SHARES},
            "explained_variance": {"mean": mean.tolist(), "deviation": deviation.tolist()},
            "singular_values_by_head": self.sigma.mean(1).tolist(),
        }


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The spectra of all attentions of a model, in its order; `skipped` says why others are not
    there, {name: reason}."""

    layers: tuple[LayerSpectrum, ...]
    skipped: dict[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> LayerSpectrum:
        for layer in self.layers:
            if layer.name == name:
                return layer
        raise KeyError(f"no layer {name!r}; there are {', '.join(one.name for one in self.layers)}")

    def to_dict(self) -> dict[str, Any]:
        """Numbers, lists and strings only: ready for JSON."""
        layers = [layer.to_dict() for layer in self.layers]
        return {"layers": layers, "skipped": dict(self.skipped)}

    def __str__(self) -> str:
        head = ["layer", "attention", "method", "heads", "inputs", "effective rank"]
        rows = [[*head, *map(_title, SHARES)]]
        for one in self.layers:
            ranks = [_text(one.effective_rank()), *(_text(one.rank_for(s)) for s in SHARES)]
            rows.append([one.name, one.kind, one.method, str(one.heads), str(one.inputs), *ranks])
        lines = aligned(rows)
        lines += [f"skipped {name}: {reason}" for name, reason in self.skipped.items()]
        return "\n".join(lines)


def comparison(spectra: Mapping[str, Spectrum]) -> str:
    """Several models, {name: spectrum}, as a table: layer by layer in their order."""
    rows = [["layer", "model", "attention", "effective rank", *map(_title, SHARES)]]
    for number in range(max((len(found.layers) for found in spectra.values()), default=0)):
        for name, found in spectra.items():
            if number < len(found.layers):
                one = found.layers[number]
                ranks = [_text(one.effective_rank()), *(_text(one.rank_for(s)) for s in SHARES)]
                rows.append([str(number), name, one.kind, *ranks])
    return "\n".join(aligned(rows))


@torch.no_grad()
def spectrum(
    model_or_attention: nn.Module,
    inputs: Any,
    *,
    exact_size: int = 2048,
    leading: int = 256,
    seed: int = 0,
) -> Spectrum:
    """The singular values of every attention matrix of a model, by layer and head, over inputs.

    `inputs`: a tensor, a tuple of arguments, a mapping of arguments by name, or an iterable of
    such; the model is run on them in eval mode. Attentions of this package, of torch
    (`nn.MultiheadAttention`), of Hugging Face (switched to eager attention meanwhile) and of timm
    are found by themselves, and so are converted ones. What a padding mask hides takes no part,
    neither as a key nor as a query.

    Primal layers: exact from their factors, O(N p^2) and never N x N. Softmax: exact where the
    matrix has at most `exact_size` rows or columns, else the `leading` largest values by a
    randomised SVD, reading a block of rows of one head at a time. (Hugging Face's modules form the
    matrices of a layer themselves.)
    """
    for name, size in (("exact_size", exact_size), ("leading", leading)):
        if size < 1:
            raise ValueError(f"{name} is {size}; expected at least 1")
    found = find_attentions(model_or_attention)
    if not found:
        raise ValueError(
            f"{type(model_or_attention).__name__} has no attention that is known here; expected "
            "one of this package, of torch, Hugging Face or timm"
        )
    records = {one.name: _Record(one) for one in found}

    def see(one: Found, call: Call, out: Any) -> None:
        seen = one.reader.read(one.module, call, out)
        records.setdefault(one.name, _Record(one)).add(seen, exact_size, leading, seed)

    skipped = run(model_or_attention, found, inputs, see)
    layers = tuple(record.result() for name, record in records.items() if name not in skipped)
    return Spectrum(layers, skipped)


class _Record:
    """What was seen of one attention, sample by sample."""

    def __init__(self, found: Found) -> None:
        self.found = found
        self.sigma: list[Array] = []  # (heads, k) each
        self.energy: list[Array] = []  # (heads,)
        self.methods: dict[str, None] = {}

    def add(self, seen: Seen, exact_size: int, leading: int, seed: int) -> None:
        if isinstance(seen, Tensor):
            self.methods["factored"] = None
            for sample in seen.double().cpu().numpy():
                self.sigma.append(sample)
                self.energy.append((sample**2).sum(-1))
            return
        for heads in seen:
            values = []
            for head in heads:
                values.append(head_values(head, exact_size=exact_size, leading=leading, seed=seed))
                self.methods[values[-1].method] = None
            self.sigma.append(np.stack([one.sigma.double().cpu().numpy() for one in values]))
            self.energy.append(np.array([one.energy for one in values]))

    def result(self) -> LayerSpectrum:
        longest = max(one.shape[-1] for one in self.sigma)
        sigma = np.zeros((self.sigma[0].shape[0], len(self.sigma), longest))
        for at, one in enumerate(self.sigma):
            sigma[:, at, : one.shape[-1]] = one
        energy = np.stack(self.energy, axis=1)
        kind, methods = self.found.reader.kind, " + ".join(self.methods)
        return LayerSpectrum(self.found.name, kind, methods, sigma, energy)


def _deviation(values: Array) -> Array:
    """The sample deviation along the first axis; 0 of a single value."""
    if len(values) < 2:
        return np.zeros(values.shape[1:])
    return np.asarray(values.std(0, ddof=1))


def _summary(values: Array) -> dict[str, float | None]:
    """Mean and deviation over heads and inputs; None where a value is not known."""
    flat = values.reshape(-1)
    if np.isnan(flat).any():
        return {"mean": None, "deviation": None}
    return {"mean": float(flat.mean()), "deviation": float(_deviation(flat[:, None])[0])}


def _title(share: float) -> str:
    return f"k for {100 * share:.0f} %"


def _text(values: Array) -> str:
    found = _summary(values)
    if found["mean"] is None:
        return "more than found"
    return f"{found['mean']:.1f} ± {found['deviation']:.1f}"
