"""Fill a table: run what is missing, as far as the time goes, and judge what is there."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ..bench import Watch
from ..names import check_choice
from ..train.config import CHOICES, EngineConfig
from ..train.sweep import Store, Terms, adopt, reopen, work
from .cells import Cell, cells_of
from .efficiency import efficiency_lines, measure
from .lines import Line, trained_lines
from .order import ordered
from .paper_tables import table
from .spectra import spectra_cells, spectra_lines

NO_EPOCHS = ("table3", "table4", "table7")  # training steps, and scores after the last epoch
Engine = Callable[[Sequence[EngineConfig], Store, Terms], None]  # does runs, wherever


def fill(
    name: str,
    folder: Path | str,
    *,
    seeds: Sequence[int] = (0,),
    protocol: str = "paper",
    quick: bool = False,
    budget: float | None = None,
    data_dir: Path | str | None = None,
    adopted: Sequence[Path | str] = (),
    retry: bool = False,
    engine: Engine | None = None,
    watch: Watch | None = None,
) -> list[Line]:
    """The lines of "table1" or of a part of it, "table1/JapaneseVowels".

    The runs that tell most for their time come first, and end after `budget` seconds; a later call
    resumes. All tables share the store in `folder`, so that no run is done twice; finished runs
    below the folders `adopted` count too. What fails is a line with its error; `retry` tries it
    again. `engine` does the runs, one after the other in this process unless told otherwise;
    `watch` follows the benchmark of Table 3.
    """
    name, part = parse_name(name)
    check_protocol(name, protocol)
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds is {list(seeds)}; expected different integers, at least one")
    folder, found = Path(folder), table(name)
    if name == "table3":
        measured = folder / ("table3-quick" if quick else "table3")
        results = measure(measured, part, quick=quick, budget=budget, watch=watch)
        return efficiency_lines(results, part, quick=quick)
    store = Store(folder)
    for other in adopted:
        adopt(store, other)
    cells: list[Cell]
    if name == "figure1":
        cells = spectra_cells(protocol=protocol, quick=quick, data_dir=data_dir)
    else:
        cells = cells_of(name, part, protocol=protocol, quick=quick, data_dir=data_dir)
    configs = ordered(cells, seeds)
    if retry:
        reopen(configs, store)
    terms = Terms(deadline=None if budget is None else time.time() + budget)
    (engine or work)(configs, store, terms)
    if name == "figure1":
        return spectra_lines(cells, part, seeds, store.outcomes(), quick=quick)
    return trained_lines(found, cells, seeds, store.outcomes(), quick=quick)


def check_protocol(name: str, protocol: str) -> None:
    """Raise unless a table has epochs that a protocol chooses."""
    check_choice("protocol", protocol, CHOICES["protocol"])
    if protocol != "paper" and name in NO_EPOCHS:
        raise ValueError(
            f"protocol is {protocol!r}; expected 'paper', since {name} has no epochs to choose"
        )


def parse_name(text: str) -> tuple[str, str | None]:
    """ "table1/JapaneseVowels" as a table and a part of it; both are checked."""
    name, _, part = text.partition("/")
    table(name).select(part or None)
    return name, part or None
