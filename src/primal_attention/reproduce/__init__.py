"""The paper's tables as data, and the runs that fill them.

from primal_attention.reproduce import fill, table

print(table("table1").figure("JapaneseVowels", "Primal.").value)
lines = fill("table1/JapaneseVowels", "reproduce", seeds=[0, 1, 2], budget=1800)
"""

from .fill import fill, parse_name
from .lines import Line
from .paper_tables import NAMES, Figure, PaperTable, table
from .published import published_lines
from .verdict import Estimate, judge

__all__ = [
    "NAMES",
    "Estimate",
    "Figure",
    "Line",
    "PaperTable",
    "fill",
    "judge",
    "parse_name",
    "published_lines",
    "table",
]
