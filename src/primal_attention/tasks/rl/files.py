"""Recorded episodes on disk: D4RL's HDF5 files, and the folders of Minari.

A D4RL file has `observations`, `actions`, `rewards`, `terminals` and `timeouts` with one row a step
and all episodes in a row. A Minari folder has `data/main_data.hdf5` with a group `episode_<n>` for
each episode: `observations` (one more than steps), `actions`, `rewards`, `terminations`,
`truncations`. Both are read with h5py alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...names import near
from ...runs.arrays import DEFLATED
from ...runs.files import replacing
from ..base import DataError
from .extra import need
from .trajectories import DIMENSIONS, Trajectories

FILLED = 2**26  # bytes of an array that a file may leave to be filled in
# what h5py raises at damaged files
BROKEN = (OSError, RuntimeError, LookupError, TypeError, ValueError, ArithmeticError, MemoryError)
MINARI_FILE = Path("data") / "main_data.hdf5"


def read_d4rl(path: Path | str, *, horizon: int = 1000) -> Trajectories:
    """The episodes of a D4RL file. Files without `timeouts`, as the first versions had them, are
    cut after `horizon` steps of an episode."""
    path = Path(path)
    with _opened(path) as file:
        names = [name for name in DIMENSIONS if name != "timeouts" or name in file]
        found = {name: _array(file, name, path) for name in names}
    if "timeouts" not in found:
        found["timeouts"] = _after(found["terminals"].astype(bool), horizon)
    return _trajectories(path, found)


def read_minari(folder: Path | str) -> Trajectories:
    """The episodes of a Minari data set, in the order of their numbers."""
    path = Path(folder) / MINARI_FILE
    parts: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in DIMENSIONS}
    with _opened(path) as file:
        groups = {name: re.fullmatch(r"episode_(\d+)", name) for name in file}
        episodes = sorted((int(m[1]), name) for name, m in groups.items() if m)
        if not episodes:
            raise DataError(f"{path} has no episodes; expected groups episode_0, episode_1, ...")
        for _, name in episodes:
            for field, array in _minari_episode(file[name], path).items():
                first = parts[field][0] if parts[field] else array
                if array.shape[1:] != first.shape[1:]:
                    raise DataError(
                        f"{path}, {name}: {field} has {array.shape[1]} columns; expected "
                        f"{first.shape[1]} as in {episodes[0][1]}"
                    )
                parts[field].append(array)
    return _trajectories(path, {name: np.concatenate(arrays) for name, arrays in parts.items()})


def write_d4rl(path: Path, data: Trajectories) -> None:
    """A file in D4RL's layout; it appears whole or not at all."""
    h5py = need("h5py", "recorded episodes")
    with replacing(path) as beside, h5py.File(beside, "w") as file:
        for name in DIMENSIONS:
            file.create_dataset(name, data=getattr(data, name), compression="gzip")


def _minari_episode(group: Any, path: Path) -> dict[str, npt.NDArray[Any]]:
    where = f"{path}, {group.name.strip('/')}"
    names = {"terminals": "terminations", "timeouts": "truncations"}
    found = {field: _array(group, names.get(field, field), where) for field in DIMENSIONS}
    steps = len(found["rewards"])
    # the state after the last action is not a step
    expected = dict.fromkeys(found, steps) | {"observations": steps + 1}
    for field, length in expected.items():
        if len(found[field]) != length:
            raise DataError(
                f"{where}: {names.get(field, field)} has {len(found[field])} rows; expected "
                f"{length} with {steps} rewards"
            )
    if steps == 0:
        raise DataError(f"{where} has no steps; expected at least one")
    found["observations"] = found["observations"][:-1]
    if not found["terminals"][-1]:  # an episode ends where its group does
        found["timeouts"][-1] = True
    return found


def _trajectories(path: Path, found: dict[str, npt.NDArray[Any]]) -> Trajectories:
    kinds = {"terminals": np.bool_, "timeouts": np.bool_}
    arrays: dict[str, Any] = {n: a.astype(kinds.get(n, np.float32)) for n, a in found.items()}
    return Trajectories(str(path), **arrays)


def _after(terminals: npt.NDArray[np.bool_], horizon: int) -> npt.NDArray[np.bool_]:
    """Timeouts after every `horizon` steps without a final state."""
    timeouts = np.zeros_like(terminals)
    begin = 0
    for end in [*np.flatnonzero(terminals), len(terminals)]:
        timeouts[begin + horizon - 1 : end : horizon] = True
        begin = end + 1
    return timeouts


def _array(group: Any, name: str, where: Any) -> npt.NDArray[Any]:
    if name not in group:
        raise DataError(f"{where} lacks the field {name!r}{near(name, group)}; expected it")
    if not hasattr(group[name], "dtype"):
        raise DataError(f"{where}: {name} is a group; expected one array")
    dataset = group[name]
    if dataset.dtype.kind not in "fiub":
        raise DataError(f"{where}: {name} has type {dataset.dtype}; expected numbers")
    stored = dataset.id.get_storage_size()
    if dataset.nbytes > max(FILLED, DEFLATED * stored):
        raise DataError(f"{where}: {name} promises {dataset.shape}, {stored:,} bytes are there")
    try:
        array: npt.NDArray[Any] = dataset[()]
    except OSError as error:
        raise DataError(f"{where}: {name} cannot be read ({_short(error)})") from error
    if name == "rewards" and array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    dimensions = DIMENSIONS.get(name, 1)
    if array.ndim != dimensions:
        raise DataError(
            f"{where}: {name} has shape {array.shape}; expected {dimensions} dimension"
            f"{'s' * (dimensions > 1)}"
        )
    return array


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    h5py = need("h5py", "recorded episodes")
    if not path.is_file():
        raise DataError(f"{path} does not exist; expected an HDF5 file")
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise DataError(f"{path} is broken or not an HDF5 file ({_short(error)})") from error
    try:
        with file:
            yield file
    except DataError:
        raise
    except BROKEN as error:
        raise DataError(f"{path} is broken ({_short(error)})") from error


def _short(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
