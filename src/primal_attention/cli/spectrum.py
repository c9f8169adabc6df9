"""`primal spectrum`: singular values of the attentions of a run or of a Hugging Face model."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from torch import nn


def spectrum(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|MODEL",
            exists=True,
            file_okay=False,
            help="The folder of a run (of seeds: the first), or of a Hugging Face model.",
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
    out: Annotated[
        Path | None,
        typer.Option(help="Where spectrum.json and pictures go.", show_default="RUN|MODEL"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Explained variance and effective rank of every attention, and KSVD diagnostics: figure 1."""
    from ..analysis import ksvd_diagnostics
    from ..analysis import spectrum as spectrum_of
    from ..attention import PrimalAttention
    from ..train.files import explained, write_json

    folder = model if out is None else out
    network, calls = load_model(model, inputs, text)
    given = list(calls)
    found = spectrum_of(network, given, exact_size=exact_size)
    result: dict[str, Any] = {"model": str(model), "spectrum": found.to_dict()}
    lines = [str(found)]
    if any(isinstance(module, PrimalAttention) for module in network.modules()):
        diagnostics = ksvd_diagnostics(network, given)
        result["diagnostics"] = diagnostics.to_dict()
        lines += ["", str(diagnostics)]
    with explained(f"write into {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "spectrum.json", result)
    written = [folder / "spectrum.json", *_draw(found, folder)]
    if as_json:
        from .show import show_json

        show_json(result | {"files": [str(path) for path in written]})
    else:
        lines += ["", *(f"wrote {path}" for path in written)]
        print("\n".join(lines))


def load_model(path: Path, inputs: int, text: Path | None) -> tuple[nn.Module, Iterator[Any]]:
    """The model in a folder, and the calls that show it `inputs` sequences."""
    from ..train.errors import RunError
    from ..train.files import read_json

    seeds = sorted(path.glob("seed-*/config.json"))
    if seeds and not (path / "config.json").exists():  # of several seeds, the first
        path = seeds[0].parent
    if not (path / "config.json").exists():
        raise RunError(
            f"{path} has no config.json; expected the folder of a run or of a Hugging Face model"
        )
    if "model_type" in read_json(path / "config.json"):
        return _hugging_face(path, inputs, text)
    if text is not None:
        raise RunError(f"--text was given with the run {path}; expected a Hugging Face model")
    return _run(path, inputs)


def _run(path: Path, inputs: int) -> tuple[nn.Module, Iterator[Any]]:
    """The best weights of a run, and the first cases of the split that chose its epoch."""
    from ..tasks import get_task
    from ..train.checkpoint import tensors_from_bytes
    from ..train.config import RunConfig
    from ..train.data import load_data
    from ..train.errors import RunError
    from ..train.files import explained, read_json

    config = RunConfig.from_dict(read_json(path / "config.json"))
    if not (path / "best.safetensors").exists():
        raise RunError(f"{path} has no best.safetensors; expected a run that ended an epoch")
    data = load_data(config)
    model = get_task(config.task).model(config, data.reader.shape)
    with explained(f"read {path / 'best.safetensors'}"):
        model.load_state_dict(tensors_from_bytes((path / "best.safetensors").read_bytes()))
    chosen = range(min(inputs, len(data.selection)))

    def batches() -> Iterator[Any]:
        for index in chosen:
            batch = data.selection.__getitems__([index])
            yield batch.inputs, batch.padding

    return model, batches()


def _hugging_face(path: Path, inputs: int, text: Path | None) -> tuple[nn.Module, Iterator[Any]]:
    from ..train.errors import RunError

    if text is None:
        raise RunError(f"{path} is a Hugging Face model; expected --text with one input a line")
    lines = [line for line in text.read_text().splitlines() if line.strip()][:inputs]
    if not lines:
        raise RunError(f"{text} holds no text; expected one input a line")
    try:
        from transformers import AutoModel, AutoTokenizer
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(
            "a Hugging Face model needs transformers; install it with pip", name=missing.name
        ) from None
    model = AutoModel.from_pretrained(path, local_files_only=True)
    tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
    return model, (dict(tokenizer(line, return_tensors="pt", truncation=True)) for line in lines)


def _draw(found: Any, folder: Path) -> list[Path]:
    """Pictures, where matplotlib is at hand."""
    if find_spec("matplotlib") is None or not found.layers:
        return []
    from ..report.spectrum_figures import explained_variance, rank_map

    return [
        *explained_variance(found, folder / "spectrum"),
        *rank_map(found, folder / "effective_rank"),
    ]
