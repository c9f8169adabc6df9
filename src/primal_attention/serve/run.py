"""The server process."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

from ..runs.errors import RunError
from ..runs.extras import needs_extra
from ..train.trained import load_run
from .app import Limits, make_app

with needs_extra("serve", "serving needs"):
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol

KEEP_ALIVE = 15  # seconds without a request
HEAD_SECONDS = 15  # in which the first lines of a request must have come


class Impatient(H11Protocol):
    """Ends a connection whose next request does not begin in time: one that sends a letter a
    minute would otherwise be kept for ever."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait_for_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_head(self) -> None:
        self._stop_waiting()
        self._timer = self.loop.call_later(HEAD_SECONDS, self._end)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _end(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()


def listen(host: str, port: int) -> socket.socket:
    """A socket that is bound; port 0 is any free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.create_server((host, port), family=family, backlog=256)
        # connections inherit it; without it an answer waits 40 ms for the client's acknowledgement
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return bound
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise RunError(f"cannot listen on {host} port {port}: {reason}") from error


def serve(
    run: Path | str, bound: socket.socket, *, limits: Limits | None = None, log: bool = False
) -> None:
    """Answer requests until Ctrl-C or SIGTERM; requests under way are finished."""
    model = load_run(run)
    config = uvicorn.Config(
        make_app(model, limits),
        http=Impatient,
        ws="none",
        lifespan="off",
        log_level="info" if log else "warning",
        access_log=log,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=10,
        server_header=False,
    )
    with bound:
        uvicorn.Server(config).run([bound])
