"""The main program of the processes that process 0 starts: compute a share, write nothing."""

from __future__ import annotations

import json
import sys

from .config import config_of
from .launch import READY, member
from .run import serve


def main() -> None:
    rank, port, settings = sys.argv[1:]
    config = config_of(json.loads(settings))
    print(READY, flush=True)
    with member(config, int(rank), int(port)) as fabric:
        serve(fabric)


if __name__ == "__main__":
    main()
