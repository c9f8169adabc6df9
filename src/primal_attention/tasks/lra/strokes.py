"""Strokes and dots of Pathfinder pictures, drawn with Pillow at a finer scale, put on a canvas.

A *stamp* is a small square image around a point. A canvas is the picture with a rim around it, so
that a stamp at any pixel of the picture lies on it.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ...runs.extras import needs_extra

SIZE = 32
LENGTH, THICKNESS, MARGIN = 2, 0.5, 1  # of a paddle, and the gap on each side of it
FINER = 2  # pictures are drawn at this scale and made smaller
DOT_RADIUS = 1.5

REACH = LENGTH + math.ceil(THICKNESS) + MARGIN
STAMP = 2 * REACH + 1  # pixels of a stamp on each side
RIM = 2 * REACH  # the ring of a next step stays on the canvas as well
WIDTH = SIZE + 2 * RIM

Canvas = npt.NDArray[np.float64]  # (WIDTH, WIDTH)
Place = tuple[int, int]  # row, column


@cache
def paddle(orientation: float) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """A stroke from the centre of a stamp, and its mask: the stroke made wider by the margin."""
    image, drawing = _pillow()
    side = (STAMP - 1) * FINER + 1
    middle = REACH * FINER
    y, x = move((middle, middle), orientation, LENGTH * FINER)
    fine = image.new("L", (side, side), 0)
    width = round(THICKNESS * FINER)
    drawing.Draw(fine).line([(middle, middle), (x, y)], fill=255, width=width)
    stroke = np.pad(np.asarray(fine), MARGIN * FINER)
    wide = np.zeros((side, side), dtype=np.uint8)
    reach = MARGIN * FINER
    for i in range(-reach, reach + 1):
        for j in range(-reach, reach + 1):
            if i * i + j * j <= reach * reach:
                part = stroke[reach + i : reach + i + side, reach + j : reach + j + side]
                wide = np.maximum(wide, part)
    return _smaller(fine), _smaller(image.fromarray(wide))


@cache
def dot_stamp() -> npt.NDArray[np.float64]:
    """A round dot in the centre of a stamp."""
    image, _ = _pillow()
    grid = np.arange(STAMP * FINER) - REACH * FINER
    disc = grid[:, None] ** 2 + grid**2 <= (DOT_RADIUS * FINER) ** 2
    return _smaller(image.fromarray(disc.astype(np.uint8) * 255))


def _smaller(fine: Any) -> npt.NDArray[np.float64]:
    image, _ = _pillow()
    return np.asarray(fine.resize((STAMP, STAMP), image.Resampling.LANCZOS)) / 255.0


def _pillow() -> tuple[Any, Any]:
    with needs_extra("data", "drawing needs"):
        from PIL import Image, ImageDraw
    return Image, ImageDraw


def put(canvas: Canvas, stamp: npt.NDArray[np.float64], at: Place) -> None:
    """Draw a stamp; where something is drawn already, the brighter one stays."""
    part = window(canvas, at)
    np.maximum(part, stamp, out=part)


def window(canvas: Canvas, at: Place) -> npt.NDArray[np.float64]:
    """The part of a canvas under a stamp at a place."""
    y, x = at[0] + RIM - REACH, at[1] + RIM - REACH
    return canvas[y : y + STAMP, x : x + STAMP]


def inner(canvas: Canvas) -> npt.NDArray[np.float64]:
    """The picture, without the rim of the canvas."""
    return canvas[RIM:-RIM, RIM:-RIM]


def to_bytes(image: Canvas) -> npt.NDArray[np.uint8]:
    """The darkest value becomes 0, the brightest 255."""
    values = inner(image)
    low, high = values.min(), values.max()
    scaled: npt.NDArray[np.uint8] = ((values - low) * (255.0 / (high - low)) + 0.5).astype(np.uint8)
    return scaled


def move(place: Place, orientation: float, distance: float) -> Place:
    """The pixel at a distance; as in the published rules, coordinates are rounded up."""
    y, x = _offset(orientation, distance)
    return place[0] + y, place[1] + x


@cache
def _offset(orientation: float, distance: float) -> Place:
    # without the rounding, 3 sin(pi) would be a whole pixel
    y = round(distance * math.sin(orientation), 9)
    x = round(distance * math.cos(orientation), 9)
    return math.ceil(y), math.ceil(x)


def flip(orientation: float) -> float:
    """The opposite direction, again from -pi to pi."""
    return orientation + math.pi if orientation < 0 else orientation - math.pi


def inside(place: Place) -> bool:
    return 0 <= place[0] < SIZE and 0 <= place[1] < SIZE
