"""Pictures of Pathfinder: two long dashed snakes, short ones that distract, and two dots.

The rules and figures are those that the benchmark publishes for its pictures of 32 x 32. A snake
is a row of paddles, short strokes with gaps. The next paddle starts beyond the gap and turns by an
angle d with probability ~ cos(d)^2, where nothing was drawn before. Two snakes of 14 paddles begin
SEED_DISTANCE apart and grow in turn; then up to 5 snakes of 4 paddles are put where there is room.
One dot marks the begin of a snake, the other the end of the same one (label 1) or of the other one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .strokes import (
    LENGTH,
    MARGIN,
    REACH,
    RIM,
    SIZE,
    WIDTH,
    Canvas,
    Place,
    dot_stamp,
    flip,
    inner,
    inside,
    move,
    paddle,
    put,
    to_bytes,
    window,
)

BORDER = 1
CONTOUR, DISTRACTOR, DISTRACTORS = 14, 4, 5  # paddles of a snake, and short snakes
SEED_DISTANCE = 7
CONTINUITY = 1.0  # larger: straighter
CONTRAST, DISTRACTOR_CONTRAST = 1.5, 2.0
PADDLE_TRIALS, DISTRACTOR_TRIALS = 3, 5
CROSSING = 1.8  # sum of two masks from which strokes cross
OCCUPIED = 0.3  # of a mask


_Places = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]  # rows and columns


class Drawing(NamedTuple):
    """A picture, and what is on it."""

    pixels: npt.NDArray[np.uint8]  # (SIZE, SIZE)
    label: int
    dots: tuple[Place, Place]
    ends: tuple[tuple[Place, Place], tuple[Place, Place]]  # first and last point of both snakes
    distractors: int


@dataclass
class _Snake:
    start: Place
    pivot: Place
    orientation: float
    tip: Place
    paddles: list[tuple[Place, float]]  # from where, in which direction


def draw(rng: np.random.Generator) -> Drawing:
    """One picture; it follows from the state of the generator alone."""
    label = int(rng.integers(2))
    grown = None
    while grown is None:
        grown = _two_snakes(rng)
    image, mask, snakes = grown
    distractors = sum(_distractor(image, mask, rng) for _ in range(DISTRACTORS))
    origin = int(rng.integers(2))
    dots = snakes[origin].start, snakes[origin if label else 1 - origin].tip
    for dot in dots:
        put(image, dot_stamp(), dot)
    a, b = ((snake.start, snake.tip) for snake in snakes)
    return Drawing(to_bytes(image), label, dots, (a, b), distractors)


# -- growing ---------------------------------------------------------------------------------------


def _two_snakes(rng: np.random.Generator) -> tuple[Canvas, Canvas, list[_Snake]] | None:
    """Image, mask and two complete snakes, or None: there was no room."""
    first = _seed(_middle, rng)
    if first is None:
        return None
    for _ in range(PADDLE_TRIALS):
        angle = math.radians(rng.integers(360))
        y = round(first.start[0] + SEED_DISTANCE * math.sin(angle))
        x = round(first.start[1] + SEED_DISTANCE * math.cos(angle))
        second = _begin((y, x), math.radians(rng.integers(-180, 180)))
        if second is not None:
            break
    else:
        return None
    mask = _within().copy()
    inner(mask)[BORDER:-BORDER, BORDER:-BORDER] = 0.0  # only the border is taken
    snakes = [first, second]
    for _ in range(CONTOUR - 1):
        for snake in snakes:
            if not _extend(snake, mask, rng):
                return None
    image = np.zeros_like(mask)
    for snake in snakes:
        _finish(snake, image, mask, CONTRAST)
    return image, mask, snakes


def _distractor(image: Canvas, mask: Canvas, rng: np.random.Generator) -> bool:
    """Draw a short snake where there is room; False where there is none."""
    for _ in range(DISTRACTOR_TRIALS):
        walls = inner(mask).copy()
        walls[[0, -1], :] = walls[:, [0, -1]] = 1.0
        snake = _seed(partial(_free, walls), rng)
        if snake is None:
            continue
        tried = mask.copy()
        if all(_extend(snake, tried, rng) for _ in range(DISTRACTOR - 1)):
            mask[:] = tried
            _finish(snake, image, mask, DISTRACTOR_CONTRAST)
            return True
    return False


def _finish(snake: _Snake, image: Canvas, mask: Canvas, contrast: float) -> None:
    """Draw a snake that is complete, and mask its last paddle."""
    for place, orientation in snake.paddles:
        put(image, contrast * paddle(orientation)[0], place)
    place, orientation = snake.paddles[-1]
    put(mask, paddle(orientation)[1], place)


def _seed(free: Callable[[float], _Places], rng: np.random.Generator) -> _Snake | None:
    """A snake of one paddle in a random direction, at one of the places free for it."""
    for _ in range(PADDLE_TRIALS):
        orientation = math.radians(rng.integers(-180, 180))
        rows, columns = free(orientation)
        if not len(rows):
            return None
        i = int(rng.integers(len(rows)))
        snake = _begin((int(rows[i]), int(columns[i])), orientation)
        if snake is not None:
            return snake
    return None


def _begin(start: Place, orientation: float) -> _Snake | None:
    """The first paddle, from `start`; None if it leaves the picture."""
    head = move(start, orientation, LENGTH)
    pivot = move(head, flip(orientation), LENGTH + MARGIN)
    if not (inside(start) and inside(head) and inside(pivot)):
        return None
    return _Snake(start, pivot, orientation, start, [(start, orientation)])


def _extend(snake: _Snake, mask: Canvas, rng: np.random.Generator) -> bool:
    """Add a paddle to a snake; False if there is no way on."""
    pivot = move(snake.pivot, snake.orientation, LENGTH + 2 * MARGIN)
    ring = _ring()
    at = (pivot[0] + RIM) * WIDTH + pivot[1] + RIM
    near = mask.take(ring.near + at).max(0)  # the mask within MARGIN pixels of each place, (K,)
    chances = (1.0 - near) * _within().take(ring.flat + at) * _straight(snake.orientation)
    steps = chances.cumsum()
    total = float(steps[-1])
    if total < 1e-4:
        return False
    for _ in range(PADDLE_TRIALS):
        i = min(int(steps.searchsorted(rng.random() * total, side="right")), len(steps) - 1)
        place = pivot[0] + ring.rows[i], pivot[1] + ring.columns[i]
        backwards = flip(ring.orientations[i])
        if (window(mask, place) + paddle(backwards)[1]).max() < CROSSING:
            # only now: the paddle before must not stand in the way of its own neighbour
            before, orientation = snake.paddles[-1]
            put(mask, paddle(orientation)[1], before)
            snake.paddles.append((place, backwards))
            snake.pivot, snake.orientation, snake.tip = pivot, ring.orientations[i], place
            return True
    return False


class _Ring(NamedTuple):
    """The K pixels at the distance of a step from its pivot, relative to it."""

    rows: list[int]
    columns: list[int]
    orientations: list[float]
    flat: npt.NDArray[np.int64]  # (K,), places in a canvas
    near: npt.NDArray[np.int64]  # (M, K), those and their neighbours within MARGIN


@cache
def _ring() -> _Ring:
    step = LENGTH + MARGIN
    angles = np.arange(0.0, 2 * np.pi, 1 / step)  # one pixel of arc
    exact = step * np.stack([np.sin(angles), np.cos(angles)], 1)
    offsets = np.unique(np.floor(exact).astype(np.int64), axis=0)
    flat = offsets @ np.array([WIDTH, 1])
    reach = range(-MARGIN, MARGIN + 1)
    disc = [i * WIDTH + j for i in reach for j in reach if i * i + j * j <= MARGIN * MARGIN]
    rows, columns = offsets.T
    orientations = np.arctan2(rows, columns)
    near = flat + np.array(disc)[:, None]
    return _Ring(rows.tolist(), columns.tolist(), orientations.tolist(), flat, near)


@cache
def _straight(orientation: float) -> npt.NDArray[np.float64]:
    """cos^2 of the turn from an orientation to each place of the ring."""
    turn = np.abs(np.array(_ring().orientations) - orientation)
    turn = np.minimum(np.minimum(turn, 2 * np.pi - turn) * CONTINUITY, np.pi / 2)
    chances: npt.NDArray[np.float64] = np.cos(turn) ** 2
    return chances


@cache
def _within() -> Canvas:
    """1 inside the picture, 0 on the rim of the canvas."""
    flags = np.zeros((WIDTH, WIDTH))
    inner(flags)[:] = 1.0
    return flags


@cache
def _middle(orientation: float) -> _Places:
    """Where the first snake of a picture may begin: in the middle."""
    walls = np.ones((SIZE, SIZE))
    rim = max(2 * SEED_DISTANCE, BORDER)
    walls[rim : SIZE - rim, rim : SIZE - rim] = 0.0
    return _free(walls, orientation)


def _free(walls: npt.NDArray[np.float64], orientation: float) -> _Places:
    """Where a first paddle fits: the core of its stamp meets no wall."""
    occupied = np.zeros((SIZE + 2 * REACH, SIZE + 2 * REACH), dtype=np.bool_)
    occupied[REACH:-REACH, REACH:-REACH] = walls > OCCUPIED
    taken = np.zeros(walls.shape, dtype=np.bool_)
    for i, j in _core(orientation):
        taken |= occupied[i : i + SIZE, j : j + SIZE]
    rows, columns = np.nonzero(~taken)
    return rows, columns


@cache
def _core(orientation: float) -> list[Place]:
    return [(int(i), int(j)) for i, j in np.argwhere(paddle(orientation)[1] == 1.0)]
