"""An episode of an agent as a picture, where nothing can be filmed.

episode(play(agent, environment), environment, "episode")        # episode.png and episode.svg
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .style import FORMATS, PALETTE, End, label_ends, new_figure, save, style

if TYPE_CHECKING:
    import numpy.typing as npt
    from matplotlib.axes import Axes

    from ..tasks.rl.environments import Environment
    from ..tasks.rl.film import Episode


def episode(
    played: Episode, environment: Environment, path: Path | str, *, formats: Sequence[str] = FORMATS
) -> list[Path]:
    """The return collected and the return still asked for, and the first entries of the state."""
    collected = np.cumsum(played.rewards, dtype=np.float64)
    names = environment.states or tuple(f"state {i}" for i in range(min(4, played.states.shape[1])))
    with style():
        title = f"{environment.id}: {collected[-1]:.0f} in {len(collected)} steps, asked for"
        figure = new_figure(7.5, 4.6, f"{title} {played.target:.0f}")
        above, below = figure.subplots(2, 1, sharex=True)
        _lines(above, ["collected", "still asked for"], [collected, played.target - collected])
        above.set_title("Return")
        _lines(below, names, [played.states[:, i] for i in range(len(names))])
        below.set_title("State")
        below.set_xlabel("step")
        return save(figure, Path(path), formats)


def _lines(axes: Axes, names: Sequence[str], rows: Sequence[npt.NDArray[np.floating]]) -> None:
    ends = []
    for row, name, colour in zip(rows, names, PALETTE, strict=False):
        axes.plot(range(1, len(row) + 1), row, color=colour, linewidth=1.2)
        ends.append(End((len(row), float(row[-1])), name, colour))
    label_ends(axes, ends)
