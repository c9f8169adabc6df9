"""A file of JSON lines: what is finished, and one more."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Lines:
    """Cases by their key; `run` does what is not there yet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self.done = {json.loads(line)["case"]: json.loads(line) for line in lines}

    def run(self, case: str, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        if case not in self.done:
            begin = time.process_time()
            found = {"case": case, **work(), "cpu_seconds": round(time.process_time() - begin, 2)}
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(found) + "\n")
            print(json.dumps(found), flush=True)
            self.done[case] = found
        return self.done[case]


def arguments(about: str, **more: Any) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--out", type=Path, required=True)
    for name, options in more.items():
        parser.add_argument(f"--{name}", **options)
    return parser.parse_args()
