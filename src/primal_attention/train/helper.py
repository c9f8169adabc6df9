"""The main program of the processes that process 0 starts: compute a share, write nothing."""

from __future__ import annotations

import json
import sys

from .config import config_of
from .launch import GO, READY, member
from .run import serve


def main() -> None:
    rank, port, settings = sys.argv[1:]
    config = config_of(json.loads(settings))
    with member(config, int(rank), int(port), _wait) as fabric:
        serve(fabric)


def _wait() -> None:
    print(READY, flush=True)
    if sys.stdin.readline().strip() != GO:
        sys.exit("process 0 has ended")


if __name__ == "__main__":
    main()
