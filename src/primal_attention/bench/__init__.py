"""Time and memory of attentions against length: measured side by side, told with reasons.

from primal_attention.bench import Plan, Settings, parse_candidates, run_bench

plan = Plan(Settings(), parse_candidates("floor,softmax,primal:tied"), (1024, 2048), cell_budget=10)
folder = run_bench(plan)
"""

from .accuracies import match_accuracies, read_accuracies
from .candidates import Candidate, default_candidates, parse_candidates, with_references
from .plan import Plan, Watch, make_plan
from .results import Cell, Results, read_results
from .run import run_bench
from .settings import Settings

__all__ = [
    "Candidate",
    "Cell",
    "Plan",
    "Results",
    "Settings",
    "Watch",
    "default_candidates",
    "make_plan",
    "match_accuracies",
    "parse_candidates",
    "read_accuracies",
    "read_results",
    "run_bench",
    "with_references",
]
