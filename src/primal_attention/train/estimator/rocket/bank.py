"""The frozen bank: random dilated kernels on the series and on its difference.

A layer has one dilation d and one form of the series, and G groups of K kernels of LENGTH taps:

    z_t = sum_j w_j y_{t + (j - 4) d},    y = a signed sum of channels, 0 outside the series.

Kernels are drawn once and never trained, after Hydra (Dempster, Schmidt, Webb: Hydra, DMKD 2023).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

LENGTH = 9  # taps of a kernel
KERNELS = 8  # in a group
MOST_CHANNELS = 8  # that a group adds up
MIXED = 4  # rows of V in the tied summary
BIASES = 2  # thresholds of a kernel
SILENCE = 1e-6  # a response below is rounding, as on a constant stretch of the series
STORED = ("picks", "gains", "kernels", "biases", "mixing")  # tensors of a layer
GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True, eq=False)
class Layer:
    """The kernels of one dilation on one form of the series."""

    dilation: int
    difference: bool
    picks: Tensor  # (G, P), the channels that a group adds up
    gains: Tensor  # (G, P), their factors
    kernels: Tensor  # (G, K, LENGTH)
    biases: Tensor  # (G, K, BIASES)
    mixing: Tensor  # (G, MIXED, K), the random V of the tied summary

    @property
    def groups(self) -> int:
        return self.kernels.shape[0]

    def part(self, groups: slice) -> Layer:
        """Some of its groups."""
        return replace(
            self,
            picks=self.picks[groups],
            gains=self.gains[groups],
            kernels=self.kernels[groups],
            biases=self.biases[groups],
            mixing=self.mixing[groups],
        )


@dataclass(frozen=True, eq=False)
class Bank:
    """All layers: the series, then its difference, for every dilation."""

    channels: int
    layers: tuple[Layer, ...]

    @property
    def groups(self) -> int:
        return self.layers[0].groups

    def with_biases(self, biases: Tensor) -> Bank:
        """The same kernels with other thresholds (layers, G, K, BIASES)."""
        pairs = zip(self.layers, biases, strict=True)
        return Bank(self.channels, tuple(replace(layer, biases=b) for layer, b in pairs))

    def tensors(self) -> dict[str, Tensor]:
        """For a file; `from_tensors` is the inverse."""
        found = {
            name: torch.stack([getattr(layer, name) for layer in self.layers]) for name in STORED
        }
        found["dilations"] = torch.tensor([layer.dilation for layer in self.layers])
        return found

    @classmethod
    def from_tensors(cls, channels: int, stored: Mapping[str, Tensor]) -> Bank:
        layers = [
            Layer(
                int(dilation),
                bool(i % 2),
                *(stored[name][i] for name in STORED),
            )
            for i, dilation in enumerate(stored["dilations"])
        ]
        return cls(channels, tuple(layers))


def draw_bank(seed: int, channels: int, longest: int, groups: int) -> Bank:
    """A bank for series of up to `longest` positions, with all thresholds 0.

    Dilations are 2^0 ... 2^floor(log2((longest - 1) / 8)). A kernel is Gaussian with its mean
    removed and sum_j |w_j| = 1.
    """
    rng = np.random.default_rng(seed)
    taps = max((longest - 1) // (LENGTH - 1), 1)
    dilations = [2**i for i in range(taps.bit_length())]
    layers = []
    for dilation in dilations:
        for difference in (False, True):
            kernels = rng.standard_normal((groups, KERNELS, LENGTH))
            kernels -= kernels.mean(-1, keepdims=True)
            kernels /= np.abs(kernels).sum(-1, keepdims=True)
            picks, gains = _draw_channels(rng, channels, groups)
            mixing = rng.standard_normal((groups, MIXED, KERNELS)) / KERNELS**0.5
            layers.append(
                Layer(
                    dilation,
                    difference,
                    picks,
                    gains,
                    torch.from_numpy(kernels.astype(np.float32)),
                    torch.zeros(groups, KERNELS, BIASES, dtype=torch.float32),
                    torch.from_numpy(mixing.astype(np.float32)),
                )
            )
    return Bank(channels, tuple(layers))


def _draw_channels(rng: np.random.Generator, channels: int, groups: int) -> tuple[Tensor, Tensor]:
    """For each group, 2^u different channels, u uniform up to log2(MOST_CHANNELS + 1), and their
    signs; the others that are picked have the factor 0."""
    most = min(channels, MOST_CHANNELS)
    picks = np.stack([rng.choice(channels, most, replace=False) for _ in range(groups)])
    number = 2.0 ** rng.uniform(0.0, np.log2(most + 1), groups)
    used = np.arange(most) < np.floor(number)[:, np.newaxis]
    gains = used * rng.choice([-1.0, 1.0], used.shape)
    return torch.from_numpy(picks), torch.from_numpy(gains.astype(np.float32))


def levels(layers: int, groups: int) -> Tensor:
    """The quantiles (layers, G, K, BIASES) that thresholds are taken at: the golden-ratio sequence
    over all kernels, and half a turn further for the second."""
    number = torch.arange(1, layers * groups * KERNELS + 1, dtype=torch.float64)
    first = number.mul(GOLDEN).view(layers, groups, KERNELS, 1)
    return (first + torch.arange(BIASES) / BIASES).remainder(1.0)


class Workspace:
    """Buffers that all chunks share: memory that is fresh each time costs more than the sums."""

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}

    def get(self, name: str, *shape: int) -> Tensor:
        """An uninitialised float32 tensor; the one of the same name before is overwritten."""
        size = math.prod(shape)
        buffer = self._buffers.get(name)
        if buffer is None or len(buffer) < size:
            buffer = self._buffers[name] = torch.empty(size, dtype=torch.float32)
        return buffer[:size].view(shape)


def difference(x: Tensor) -> Tensor:
    """x_t - x_{t-1} along the last dimension, 0 at the first position."""
    return pad(x.diff(dim=-1), (1, 0))


def responses(layer: Layer, x: Tensor, stride: int, work: Workspace) -> Tensor:
    """z (B, G, K, n) at every stride-th position of x (B, C, T), n = ceil(T / stride).

    x is the form of the series that the layer is for, and 0 behind the end of a shorter case.
    """
    cases, channels, length = x.shape
    groups, positions = layer.groups, -(-length // stride)
    inputs = 1 if channels == 1 else groups  # a single channel is the same for all groups
    margin = (LENGTH // 2) * layer.dilation
    padded = work.get("padded", cases, inputs, length + 2 * margin)
    padded[..., :margin] = 0.0
    padded[..., margin + length :] = 0.0
    _add_channels(layer, x, padded[..., margin : margin + length])
    outer, row = inputs * padded.shape[2], padded.shape[2]
    windows = work.get("windows", cases, inputs, LENGTH, positions)
    windows.copy_(
        padded.as_strided(windows.shape, (outer, row, layer.dilation, stride))
    )  # (B, 1 or G, LENGTH, n)
    z = work.get("z", cases, groups, KERNELS, positions)
    kernels = layer.kernels.reshape(inputs, -1, LENGTH).repeat(cases, 1, 1)
    torch.bmm(
        kernels, windows.view(-1, LENGTH, positions), out=z.view(cases * inputs, -1, positions)
    )
    return torch.hardshrink(z, SILENCE, out=z)


def _add_channels(layer: Layer, x: Tensor, out: Tensor) -> None:
    """The weighted sum of the picked channels of each group (B, G, T)."""
    if x.shape[1] == 1:
        out.copy_(x)
        return
    torch.mul(x[:, layer.picks[:, 0]], layer.gains[:, :1], out=out)
    for picked, gain in zip(layer.picks.T[1:], layer.gains.T[1:, :, None], strict=True):
        out.addcmul_(x[:, picked], gain)
