"""RandAugment (Cubuk et al., 2020) with the operations and strengths of the DeiT recipe
(`rand-m9-mstd0.5-inc1`), one image at a time, with Pillow.

Two operations are drawn for every image, and each is applied with probability 1/2 at a strength of
9 +- 0.5 of 10. Greater strengths change an image more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from ...runs.extras import needs_extra
from .sets import Pixels

OPERATIONS = 2
STRENGTH, DEVIATION = 9.0, 0.5  # of 10
_AREA, _RATIO = (0.08, 1.0), (3 / 4, 4 / 3)  # of a random window
Image = Any  # a Pillow image
Operation = Callable[[Image, float, Random], Image]


def pillow() -> Any:
    """The module PIL.Image."""
    with needs_extra("data", "reading and augmenting images needs"):
        from PIL import Image
    return Image


def augmented(pixels: Pixels, seed: int, *, size: int, window: bool, flip: bool) -> Pixels:
    """An image (size, size, 3) from one of (S, S, 3): with `window` a random part of it is resized,
    else it stays as it is; half of them are mirrored with `flip`; then RandAugment. The same seed
    gives the same image, in whichever thread."""
    lottery = Random(seed)
    image = pillow().fromarray(pixels)
    if window:
        image = resized_window(image, size, lottery)
    if flip and lottery.random() < 0.5:
        image = image.transpose(pillow().Transpose.FLIP_LEFT_RIGHT)
    return np.asarray(randaugment(image, lottery))


def resized_window(image: Image, size: int, lottery: Random) -> Image:
    """A window of 8 to 100 % of the area and a ratio of 3:4 to 4:3, resized to (size, size)."""
    width, height = image.size
    for _ in range(10):
        area = width * height * lottery.uniform(*_AREA)
        ratio = math.exp(lottery.uniform(*map(math.log, _RATIO)))
        w, h = math.sqrt(area * ratio), math.sqrt(area / ratio)
        if w <= width and h <= height:
            break
    else:
        w, h = width, height
    left, top = lottery.uniform(0, width - w), lottery.uniform(0, height - h)
    box = (left, top, left + w, top + h)
    return image.resize((size, size), pillow().Resampling.BICUBIC, box=box)


def randaugment(image: Image, lottery: Random) -> Image:
    """Two random operations, each with probability 1/2."""
    for _ in range(OPERATIONS):
        name = list(_OPERATIONS)[int(lottery.random() * len(_OPERATIONS))]
        strength = min(max(lottery.gauss(STRENGTH, DEVIATION) / 10, 0.0), 1.0)
        if lottery.random() < 0.5:
            image = _OPERATIONS[name](image, strength, lottery)
    return image


# -- operations ------------------------------------------------------------------------------------

_GREY = (128, 128, 128)  # what comes in from outside of the image


def _affine(entries: Callable[[float, Image], tuple[float, ...]]) -> Operation:
    """A move of the pixels by the matrix that `entries(signed strength, image)` gives."""

    def apply(image: Image, strength: float, lottery: Random) -> Image:
        kind = pillow()
        matrix = entries(strength * _sign(lottery), image)
        return image.transform(
            image.size, kind.Transform.AFFINE, matrix, kind.Resampling.BILINEAR, fillcolor=_GREY
        )

    return apply


def _image_ops(name: str, argument: Callable[[float], int] | None = None) -> Operation:
    """An operation of ImageOps, with an argument that follows from the strength."""

    def apply(image: Image, strength: float, lottery: Random) -> Image:
        from PIL import ImageOps

        arguments = () if argument is None else (argument(strength),)
        return getattr(ImageOps, name)(image, *arguments)

    return apply


def _enhance(name: str) -> Operation:
    """Less or more of a quality: a factor of 1 - 0.9 strength or 1 + 0.9 strength."""

    def apply(image: Image, strength: float, lottery: Random) -> Image:
        from PIL import ImageEnhance

        return getattr(ImageEnhance, name)(image).enhance(1 + 0.9 * strength * _sign(lottery))

    return apply


def _rotate(image: Image, strength: float, lottery: Random) -> Image:
    angle = 30 * strength * _sign(lottery)
    return image.rotate(angle, pillow().Resampling.BILINEAR, fillcolor=_GREY)


def _solarize_add(image: Image, strength: float, lottery: Random) -> Image:
    more = int(110 * strength)
    table = [min(255, i + more) if i < 128 else i for i in range(256)]
    return image.point(table * 3)


def _sign(lottery: Random) -> float:
    return -1.0 if lottery.random() < 0.5 else 1.0


_OPERATIONS: dict[str, Operation] = {
    "autocontrast": _image_ops("autocontrast"),
    "equalize": _image_ops("equalize"),
    "invert": _image_ops("invert"),
    "rotate": _rotate,
    "posterize": _image_ops("posterize", lambda m: max(4 - int(4 * m), 1)),
    "solarize": _image_ops("solarize", lambda m: 256 - int(256 * m)),
    "solarize_add": _solarize_add,
    "color": _enhance("Color"),
    "contrast": _enhance("Contrast"),
    "brightness": _enhance("Brightness"),
    "sharpness": _enhance("Sharpness"),
    "shear_x": _affine(lambda m, _: (1, 0.3 * m, 0, 0, 1, 0)),
    "shear_y": _affine(lambda m, _: (1, 0, 0, 0.3 * m, 1, 0)),
    "translate_x": _affine(lambda m, image: (1, 0, 0.45 * m * image.size[0], 0, 1, 0)),
    "translate_y": _affine(lambda m, image: (1, 0, 0, 0, 1, 0.45 * m * image.size[1])),
}
