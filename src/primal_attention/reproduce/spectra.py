"""Figure 1: how fast the singular values of attention matrices decay, in the models of Table 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runs.folder import WEIGHTS
from ..train.config import EngineConfig
from ..train.sweep.store import Outcome
from .cells import MODELS, NOT_PUBLISHED, Cell, cells_of
from .lines import QUICK_REASON, Line, outcome_of, state
from .paper_tables import table
from .verdict import Verdict, estimate

if TYPE_CHECKING:
    from torch import Tensor, nn

SHARE, INPUTS = 0.9, 32
DEEPER = "deeper layers decay more sharply"
SET = "JapaneseVowels"  # comes with the package


def spectra_cells(**options: Any) -> list[Cell]:
    """The runs that are looked at: the Transformer and Primal.+Trans. of Table 1."""
    models = ("Trans.", "Primal.+Trans.")
    return [cell for cell in cells_of("table1", SET, **options) if cell.column in models]


def spectra_lines(
    cells: Sequence[Cell],
    part: str | None,
    seeds: Sequence[int],
    outcomes: Mapping[str, Outcome],
    *,
    quick: bool = False,
) -> list[Line]:
    """Whether what the paper states about the figure holds: by how many singular values fewer
    explain 90 % of the variance, with Student's t-interval over seeds. It is "reproduced" if the
    interval lies above zero, for one seed the difference itself."""
    found = table("figure1")
    lines = []
    for row, column in found.select(part):
        ours, why = None, ""
        verdict: Verdict = "not run"
        if not row.startswith(SET):
            why = NOT_PUBLISHED
        elif gains := _gains(cells, row.endswith(DEEPER), seeds, outcomes):
            ours = estimate(gains, unit=1.0)
            verdict = "reproduced" if ours.low > 0 else "not reproduced"
        else:
            why = _missing(cells, seeds, outcomes)
        if ours is not None and quick:
            verdict, why = "not run", QUICK_REASON
        lines.append(Line(row, column, found.figure(row, column).printed, 0.0, ours, verdict, why))
    return lines


def _gains(
    cells: Sequence[Cell], deeper: bool, seeds: Sequence[int], outcomes: Mapping[str, Outcome]
) -> list[float]:
    """For every seed whose runs are finished, how many singular values fewer are needed."""
    configs = {cell.config.attention: cell.config for cell in cells if cell.config is not None}
    trans, plus = configs.get(MODELS["Trans."]), configs.get(MODELS["Primal.+Trans."])
    if trans is None or plus is None:
        return []
    gains = []
    for seed in seeds:
        runs = [_finished(one, seed, outcomes) for one in (trans, plus)]
        if runs[0] is not None and deeper:
            ranks = ranks_of(runs[0])
            gains.append(ranks[0] - ranks[-1])
        elif runs[0] is not None and runs[1] is not None:
            gains.append(ranks_of(runs[0])[-1] - ranks_of(runs[1])[-1])
    return gains


def _missing(cells: Sequence[Cell], seeds: Sequence[int], outcomes: Mapping[str, Outcome]) -> str:
    """Why there is nothing to look at: what became of the first run that is not finished."""
    for cell in cells:
        if cell.config is None:
            return f"{cell.column}: {cell.why}"
        for seed in seeds:
            found = outcome_of(cell.config, seed, outcomes)
            if found is None or found.status != "finished":
                return state(found)
    return "the runs of Table 1 have no weights"


def _finished(config: EngineConfig, seed: int, outcomes: Mapping[str, Outcome]) -> Path | None:
    found = outcome_of(config, seed, outcomes)
    if found is None or found.status != "finished":
        return None
    run = Path(found.run)
    return run if (run / WEIGHTS).exists() else None


def ranks_of(run: Path) -> list[float]:
    """By layer, the mean number of singular values that explain 90 % of the variance, over heads
    and the first inputs of the set that chose the epoch."""
    from ..analysis import spectrum

    found = spectrum(*load_run(run, INPUTS))
    return [float(layer.rank_for(SHARE).mean()) for layer in found.layers]


def load_run(run: Path, inputs: int) -> tuple[nn.Module, list[tuple[Tensor, Tensor]]]:
    """The best weights of a run, and calls with the first `inputs` cases of the set that chose its
    epoch, one each. A RunError says what the run lacks."""
    from ..train.judged import open_run

    data, model = open_run(run)
    batches = [data.selection.__getitems__([i]) for i in range(min(inputs, len(data.selection)))]
    return model, [(batch.inputs, batch.padding) for batch in batches]
