"""Add finished runs to those that the package is published with (`primal reproduce --published`).

    python benchmarks/publish_runs.py FOLDER [FOLDER ...]

Runs are looked for below the folders. One that stands in no table of the paper, by its settings, is
left out and named; one that is there already is kept as it is.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import tempfile
from pathlib import Path
from typing import Any

from primal_attention.reproduce import published as ours
from primal_attention.reproduce.cells import cells_of
from primal_attention.reproduce.lines import outcome_of
from primal_attention.runs.files import write_texts
from primal_attention.train.sweep import Outcome, Store, adopt

TARGET = Path(ours.__file__).parent / "data" / "published.jsonl"


def stands_in(outcome: Outcome) -> str:
    """The table that has a cell for these settings; "" if none has."""
    known, seed = {outcome.fingerprint: outcome}, outcome.settings["seed"]
    for name in ours.TRAINED:
        for protocol in ("paper", "holdout"):
            for cell in cells_of(name, protocol=protocol, with_data=False):
                if cell.config is not None and outcome_of(cell.config, seed, known) is not None:
                    return name
    return ""


def line(outcome: Outcome) -> dict[str, Any]:
    """Without the places where it was trained."""
    settings = {**outcome.settings, "data_dir": None}
    curve = tuple(round(value, 5) for value in outcome.curve)
    return dataclasses.replace(outcome, run="", settings=settings, curve=curve).to_dict()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", type=Path, nargs="+")
    known = ours.published() if TARGET.exists() else {}
    with tempfile.TemporaryDirectory() as temporary:
        store = Store(temporary)
        for folder in parser.parse_args().folders:
            adopt(store, folder)
        found = store.outcomes()
    for fingerprint, outcome in found.items():
        if fingerprint in known:
            continue
        place = stands_in(outcome)
        print(f"{place or 'no table'}: {outcome}")
        if place:
            known[fingerprint] = outcome
    rows = sorted((line(one) for one in known.values()), key=lambda row: str(row["settings"]))
    texts = [json.dumps(row, ensure_ascii=False, sort_keys=True) for row in rows]
    write_texts(TARGET.parent, {TARGET.name: "\n".join(texts) + "\n"})


if __name__ == "__main__":
    main()
