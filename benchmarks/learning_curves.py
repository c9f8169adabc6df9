"""The learning curves of several runs in one picture.

    python benchmarks/learning_curves.py docs/results/lra-listops.png PrimalFormer=runs/listops ...

Takes NAME=RUN, folders of finished `primal train` runs.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from primal_attention.report.figures import compare

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("picture", type=Path, help="a .png")
    parser.add_argument("runs", nargs="+", metavar="NAME=RUN")
    given = parser.parse_args()
    runs = dict(pair.split("=", 1) for pair in given.runs)
    print(*compare(runs, given.picture.with_suffix(""), formats=("png",)), sep="\n")
