"""Many runs: grids and searches, in one store that many processes share.

from primal_attention.train.sweep import MedianRule, Store, Terms, grid, parse_space, trials, work

space = parse_space(["rank=20,30,40", "eta=0,0.1"])
store = Store("sweeps/vowels")
work(trials(base, grid(space), seeds=[0]), store, Terms(rule=MedianRule()))
"""

from .place import Place, run_sweep
from .runner import work, work_in_processes
from .space import Range, grid, parse_space, trials, varied
from .stopping import MedianRule
from .store import Outcome, Store
from .summary import Map, Point, best, make_map, points_csv, summarise
from .trial import Terms, adopt, is_open, reopen, run_trial

__all__ = [
    "Map",
    "MedianRule",
    "Outcome",
    "Place",
    "Point",
    "Range",
    "Store",
    "Terms",
    "adopt",
    "best",
    "grid",
    "is_open",
    "make_map",
    "parse_space",
    "points_csv",
    "reopen",
    "run_sweep",
    "run_trial",
    "summarise",
    "trials",
    "varied",
    "work",
    "work_in_processes",
]
