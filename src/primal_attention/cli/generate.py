"""`primal generate`: a run that learned a language goes on with a text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .settings import usage

EPILOG = 'Example: primal generate runs/lm-text-primal-001 "Once upon a time" --tokens 200'


def generate(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", exists=True, file_okay=False, help="A finished run.")
    ],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What it goes on from.")],
    *,
    tokens: Annotated[int, typer.Option(help="How many tokens to add.")] = 100,
    temperature: Annotated[
        float,
        typer.Option(help="Below 1 more likely tokens, above 1 more surprising; 0 = likeliest."),
    ] = 0.8,
    top: Annotated[
        int | None, typer.Option(help="Draw from so many likeliest tokens.", show_default="all")
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
) -> None:
    """Go on with a text, token by token, from the memory of the layers."""
    from ..train.streams import generate as go_on

    with usage():
        typer.echo(text, nl=False)
        for piece in go_on(run, text, tokens=tokens, temperature=temperature, top=top, seed=seed):
            typer.echo(piece, nl=False)
    typer.echo()
