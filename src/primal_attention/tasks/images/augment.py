"""Changes of a batch of images in training. Random numbers come from torch's default generator, so
that a resumed run draws what it would have drawn; torchvision would add a second package that must
match torch's version to the digit."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

_ERASED = (0.02, 1 / 3)  # share of the image
_RATIO = 3.3  # height to width, or width to height, at most
_CUTMIX_ALPHA = 1.0


def crop_and_flip(images: Tensor, size: int, *, flip: bool) -> Tensor:
    """A window (B, size, size, 3) of images (B, S, S, 3) at a random place, mirrored half the time.

    Images that are no larger than the window get a black margin of size / 8 first.
    """
    batch, side = images.shape[:2]
    if side <= size:
        margin = size // 8
        images = F.pad(images, (0, 0, margin, margin, margin, margin))
        side += 2 * margin
    top, left = torch.randint(side - size + 1, (2, batch))
    window = torch.arange(size)
    rows, columns = top[:, None] + window, left[:, None] + window  # (B, size)
    if flip:
        mirrored = torch.rand(batch) < 0.5
        columns = torch.where(mirrored[:, None], columns.flip(1), columns)
    case = torch.arange(batch)[:, None, None]
    return images[case, rows[:, :, None], columns[:, None, :]]


def erase(images: Tensor, probability: float = 0.25) -> Tensor:
    """Random erasing (Zhong et al., 2020): in some of the images (B, 3, H, W) a rectangle becomes
    normal noise."""
    height, width = images.shape[-2:]
    chosen = (torch.rand(len(images)) < probability).nonzero().flatten()
    count = len(chosen)
    if not count:
        return images
    low, high = _ERASED
    area = height * width * (low + (high - low) * torch.rand(count))
    ratio = torch.exp(math.log(_RATIO) * (2 * torch.rand(count) - 1))
    h = (area * ratio).sqrt().round().clamp(1, height)
    w = (area / ratio).sqrt().round().clamp(1, width)
    top = (torch.rand(count) * (height - h + 1)).floor()
    left = (torch.rand(count) * (width - w + 1)).floor()
    inside = _rectangles(top, left, h, w, height, width)
    some = images[chosen]
    erased = images.clone()
    erased[chosen] = torch.where(inside[:, None], torch.randn_like(some), some)
    return erased


def _rectangles(top: Tensor, left: Tensor, h: Tensor, w: Tensor, height: int, width: int) -> Tensor:
    """Masks (B, height, width) that are True inside of rectangles."""
    y, x = torch.arange(height), torch.arange(width)
    rows = (y >= top[:, None]) & (y < (top + h)[:, None])
    columns = (x >= left[:, None]) & (x < (left + w)[:, None])
    return rows[:, :, None] & columns[:, None, :]


class Mixed(NamedTuple):
    images: Tensor  # (B, 3, H, W)
    targets: Tensor  # (B, classes), shares that sum to 1


def mix(images: Tensor, targets: Tensor, classes: int, alpha: float, *, cut: bool) -> Mixed:
    """Mixup (Zhang et al., 2018): x_i <- l x_i + (1 - l) x_j with l ~ Beta(alpha, alpha), one l and
    the reversed order j for the whole batch; the targets are mixed alike.

    With `cut`, half of the batches are mixed by CutMix (Yun et al., 2019) instead: a rectangle of
    x_j with the share 1 - l of the area, l ~ Beta(1, 1), is put into x_i.
    """
    shares = F.one_hot(targets, classes).to(images.dtype)
    if cut and torch.rand(()) < 0.5:
        kept = float(torch.distributions.Beta(_CUTMIX_ALPHA, _CUTMIX_ALPHA).sample())
        inside = _cut(kept, *images.shape[-2:])
        images = torch.where(inside, images.flip(0), images)
        kept = 1.0 - inside.float().mean().item()  # the rectangle may have left the image
    else:
        kept = float(torch.distributions.Beta(alpha, alpha).sample())
        images = kept * images + (1.0 - kept) * images.flip(0)
    return Mixed(images, kept * shares + (1.0 - kept) * shares.flip(0))


def _cut(kept: float, height: int, width: int) -> Tensor:
    """A rectangle (height, width) with centre anywhere, cut off at the border."""
    side = math.sqrt(1.0 - kept)
    centre = torch.rand(2, 1)
    h, w = torch.tensor([round(side * height)]), torch.tensor([round(side * width)])
    top = (centre[0] * height).floor() - h // 2
    left = (centre[1] * width).floor() - w // 2
    return _rectangles(top, left, h, w, height, width)[0]
