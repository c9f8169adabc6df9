"""`primal export`: a trained run as a file for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import AsJson

EPILOG = "Example: primal export runs/sensors-primal+primal-001 --format onnx"


def export(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN",
            exists=True,
            file_okay=False,
            help="A finished run, or the folder of a converted Hugging Face model.",
        ),
    ],
    *,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            help="onnx; torch: a program that needs torch alone; safetensors: a folder in the "
            "format of the Hugging Face Hub.",
        ),
    ] = "onnx",
    out: Annotated[Path | None, typer.Option(help="File or folder.", show_default="in RUN")] = None,
    push: Annotated[
        str | None,
        typer.Option(metavar="USER/NAME", help="Upload the folder to a repository of the Hub."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a run as ONNX, as a program of torch, or as a folder for the Hub, and compare it with
    the run: scaling is inside, batch and length may have any size. Or a converted Hugging Face
    model, as `primal adapt` leaves it, as ONNX or as a program of torch."""
    from ..names import check_choice
    from ..train.trained.converted import export_converted, is_converted
    from ..train.trained.export import FORMATS, export_run
    from ..train.trained.hub import push_run
    from .settings import UsageError, usage
    from .show import show_json, show_rows

    with usage():
        check_choice("format", form, FORMATS)
    if push is not None and form != "safetensors":
        raise UsageError(f"--push is for --format safetensors; found {form}")
    converted = is_converted(run)
    if converted and form == "safetensors":
        raise UsageError(f"{run} is in safetensors already; expected --format onnx or torch")
    found = export_converted(run, form, out) if converted else export_run(run, form, out)
    address = push_run(run, push) if push is not None else None
    if as_json:
        shown = {"path": str(found.path), "difference": found.difference, "pushed": address}
        show_json(shown | {"compared": found.compared, "dynamic": list(found.dynamic)})
        return
    size = sum(f.stat().st_size for f in _files(found.path)) / 2**20
    rows = {
        "file": f"{found.path}, {size:.1f} MB",
        "compared": f"{found.compared} batches, greatest difference {found.difference:.1e}",
        "any": " and ".join(found.dynamic),
    }
    show_rows(rows if address is None else rows | {"pushed": address})


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else [file for file in path.iterdir() if file.is_file()]
