"""A trained model as one function of raw values: what an exported file computes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .model import TrainedModel


class Deployed(nn.Module):
    """Probabilities (B, classes), or numbers (B, 1), of raw values: scaling is inside.

    Series are (B, N, channels) float32, NaN = missing, with padding (B, N) bool, True = ignore;
    images (B, 3, size, size) float32 of 0 to 255.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, model: TrainedModel) -> None:
        super().__init__()
        self.network, self.images = model.module, model.reads_images
        self.scale = getattr(model.reader, "scale", None)
        mean, deviation = _scaling(model)
        self.register_buffer("mean", mean)
        self.register_buffer("deviation", deviation)

    def forward(self, inputs: Tensor, padding: Tensor | None = None) -> Tensor:
        x = (inputs - self.mean) / self.deviation
        if not self.images:
            x = x.nan_to_num(nan=0.0)
            if padding is not None:
                x = x.masked_fill(padding.unsqueeze(-1), 0.0)
        out: Tensor = self.network(x, padding)
        if self.scale is None:
            return out.softmax(-1)
        mean, deviation = self.scale
        values: Tensor = out * deviation + mean
        return values


def _scaling(model: TrainedModel) -> tuple[Tensor, Tensor]:
    """Mean and deviation, in the shape of the inputs."""
    if model.reads_images:
        known = model.reader.look.statistics
        mean, deviation = known or ((0.0,) * 3, (255.0,) * 3)
        return torch.tensor(mean).view(3, 1, 1), torch.tensor(deviation).view(3, 1, 1)
    normaliser = model.reader.normaliser
    if normaliser is None:
        return torch.zeros(()), torch.ones(())
    return torch.from_numpy(normaliser.mean).float(), torch.from_numpy(normaliser.deviation).float()
