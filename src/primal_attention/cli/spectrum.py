"""`primal spectrum`: singular values of the attentions of runs or of Hugging Face models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from .options import AsJson
from .settings import UsageError


def spectrum(
    models: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN|MODEL...",
            exists=True,
            file_okay=False,
            help="Folders of runs (of seeds: the first), or of Hugging Face models.",
        ),
    ],
    inputs: Annotated[int, typer.Option(min=1, help="How many sequences to look at.")] = 32,
    text: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="Text for a Hugging Face model, one input a line."
        ),
    ] = None,
    exact_size: Annotated[
        int, typer.Option(min=1, help="Longest softmax matrix whose SVD is exact.")
    ] = 2048,
    names: Annotated[
        str | None,
        typer.Option(help="Names of the models, comma-separated.", show_default="the folders"),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(
            help="Also the flow between groups of positions: a number of equal parts, or the token "
            "that separates them (Hugging Face)."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where spectrum.json and pictures go; needed for several models.",
            show_default="RUN|MODEL",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Explained variance and effective rank of every attention, and KSVD diagnostics: figure 1."""
    from ..report.model_spectra import tell, write_spectra

    called = _names(models, names)
    if out is None and len(models) > 1:
        raise UsageError(f"{len(models)} models were given; expected --out with them")
    looks, result, written = write_spectra(
        dict(zip(called, models, strict=True)), models[0] if out is None else out,
        inputs=inputs, text=text, exact_size=exact_size, groups=groups,
    )  # fmt: skip
    if as_json:
        from .show import show_json

        show_json(result | {"files": [str(path) for path in written]})
    else:
        print(tell(looks), "", *(f"wrote {path}" for path in written), sep="\n")


def _names(models: Sequence[Path], given: str | None) -> list[str]:
    from ..report.sections.read import short_paths

    if len(set(models)) < len(models):
        raise UsageError("a model was given twice; expected each once")
    if given is None:
        return list(short_paths(models).values())
    names = [name.strip() for name in given.split(",")]
    if len(set(names)) != len(models):
        raise UsageError(f"--names is {given!r}; expected {len(models)} different names")
    return names
