"""`primal serve`: a trained run behind HTTP."""

from __future__ import annotations

from typing import Annotated

import typer

from .predict import Run

EPILOG = "Example: primal serve runs/sensors-primal+primal-001 --port 8000"


def serve(
    run: Run,
    *,
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 is all of this machine's.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 is a free one.")] = 8000,
    max_megabytes: Annotated[float, typer.Option(help="Largest body of a request.")] = 8.0,
    max_seconds: Annotated[
        float, typer.Option(help="Time for a body to come, and again for its answer.")
    ] = 10.0,
    max_cases: Annotated[int, typer.Option(help="Most cases of a request.")] = 1000,
    log: Annotated[bool, typer.Option("--log", help="A line for every request.")] = False,
) -> None:
    """Serve a run over HTTP: POST /predict takes JSON or csv and answers with probabilities,
    GET /health says what is served, and / is a page to try it. There is no password: put it behind
    a server that has one before others can reach it."""
    from ..serve.app import Limits
    from ..serve.run import listen
    from ..serve.run import serve as run_server
    from .settings import usage

    with usage():
        limits = Limits(max_megabytes, max_seconds, max_cases)
    bound = listen(host, port)
    named = f"[{host}]" if ":" in host else host  # so that its colons are not those of a port
    where = f"http://{named}:{bound.getsockname()[1]}"
    typer.echo(f"{run} at {where} (Ctrl-C ends it)", err=True)
    run_server(run, bound, limits=limits, log=log)
