"""All campaigns in turn, or those that are named; ends with 1 if anything failed."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tempfile
from pathlib import Path

from .campaign import SHOWN, Budget, Campaign, Tally

SHARES = {  # of the time
    "kills": 0.2, "pairs": 0.1, "workers": 0.1, "disk": 0.15, "versions": 0.05, "masks": 0.1,
    "files": 0.1, "memory": 0.1, "streams": 0.1,
}  # fmt: skip
MEMORY = Path("/dev/shm")  # files in memory: what is killed is the process, not the machine


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("campaigns", nargs="*", help=", ".join(SHARES))
    parser.add_argument("--minutes", type=float, default=None, help="for all that are named")
    parser.add_argument("--cases", type=int, default=None, help="at most, of each campaign")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    asked = parser.parse_args(words)
    names = asked.campaigns or list(SHARES)
    if unknown := [name for name in names if name not in SHARES]:
        parser.error(f"the campaign is {unknown[0]!r}; expected one of {', '.join(SHARES)}")
    minutes = asked.minutes or (24 * 60 if asked.cases else 10)
    whole = sum(SHARES[name] for name in names)
    tallies = []
    for name in names:
        budget = Budget(60 * minutes * SHARES[name] / whole, asked.cases, asked.first)
        tallies.append(campaign(name, budget))
    failed = sum(len(tally.failures) for tally in tallies)
    print(f"soak: {sum(t.cases for t in tallies):,} cases, {failed} failed", flush=True)
    return int(failed > 0)


def campaign(name: str, budget: Budget) -> Tally:
    """Run one and print its line."""
    run: Campaign = importlib.import_module(f"{__package__}.{name}").run
    tally = Tally(name)
    place = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix=f"soak-{name}-", dir=place) as folder:
        run(budget, tally, Path(folder))
    tally.seconds = budget.spent
    print(tally.line(), flush=True)
    for failure in tally.failures[:SHOWN]:
        print(f"  {failure}", flush=True)
    return tally


if __name__ == "__main__":
    sys.exit(main())
