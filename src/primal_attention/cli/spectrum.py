"""`primal spectrum`: singular values of the attentions of runs or of Hugging Face models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .settings import UsageError

if TYPE_CHECKING:
    from torch import nn

    from ..report.run_spectra import Look


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
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where spectrum.json and pictures go; needed for several models.",
            show_default="RUN|MODEL",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Explained variance and effective rank of every attention, and KSVD diagnostics: figure 1."""
    from ..report.run_spectra import look_at
    from ..runs.files import explained, write_json

    called = _names(models, names)
    if out is None and len(models) > 1:
        raise UsageError(f"{len(models)} models were given; expected --out with them")
    folder = models[0] if out is None else out
    looks: dict[str, Look] = {}
    documents: dict[str, dict[str, Any]] = {}
    for name, path in zip(called, models, strict=True):
        looks[name] = look_at(*load_model(path, inputs, text), exact_size=exact_size)
        documents[name] = {"model": str(path)} | looks[name].to_dict()
    result = {"models": documents} if len(models) > 1 else documents[called[0]]
    with explained(f"write into {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "spectrum.json", result)
    written = [folder / "spectrum.json", *_draw(looks, folder)]
    if as_json:
        from .show import show_json

        show_json(result | {"files": [str(path) for path in written]})
    else:
        print(_words(looks), "", *(f"wrote {path}" for path in written), sep="\n")


def load_model(path: Path, inputs: int, text: Path | None) -> tuple[nn.Module, Sequence[Any]]:
    """The model in a folder, and the calls that show it `inputs` sequences."""
    from ..report.run_spectra import load_run
    from ..runs.errors import RunError
    from ..runs.files import read_json

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
    return load_run(path, inputs)


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


def _hugging_face(path: Path, inputs: int, text: Path | None) -> tuple[nn.Module, Sequence[Any]]:
    from ..convert.pretrained import require_transformers
    from ..runs.errors import RunError

    if text is None:
        raise RunError(f"{path} is a Hugging Face model; expected --text with one input a line")
    lines = [line for line in text.read_text().splitlines() if line.strip()][:inputs]
    if not lines:
        raise RunError(f"{text} holds no text; expected one input a line")
    transformers = require_transformers()
    tokenizer = transformers.AutoTokenizer.from_pretrained(path, local_files_only=True)
    calls = [dict(tokenizer(line, return_tensors="pt", truncation=True)) for line in lines]
    return _open(path), calls


def _open(path: Path) -> nn.Module:
    """A Hugging Face model, converted or not."""
    from ..convert import from_pretrained, load
    from ..convert.folder import CONFIG, RECORD
    from ..convert.pretrained import require_transformers
    from ..convert.record import FIELD
    from ..runs.files import read_json

    if (path / RECORD).exists():  # `save` or `primal convert` wrote it
        return load(path)
    if read_json(path / CONFIG).get(FIELD):  # a converted model's own save_pretrained did
        return from_pretrained(path)
    model: nn.Module = require_transformers().AutoModel.from_pretrained(path, local_files_only=True)
    return model


def _words(looks: Mapping[str, Look]) -> str:
    """One model with its diagnostics, or several side by side."""
    from ..analysis.spectra import comparison

    if len(looks) == 1:
        return str(next(iter(looks.values())))
    spectra = {name: look.spectrum for name, look in looks.items()}
    parts = [comparison(spectra)]
    for name, look in looks.items():
        skipped = look.spectrum.skipped.items()
        parts += [f"{name}: {layer} was skipped: {why}" for layer, why in skipped]
        if look.diagnostics is not None:
            parts.append(f"{name}\n{look.diagnostics}")
    return "\n\n".join(parts)


def _draw(looks: Mapping[str, Look], folder: Path) -> list[Path]:
    """Pictures, where matplotlib is at hand."""
    spectra = {name: look.spectrum for name, look in looks.items() if look.spectrum.layers}
    if find_spec("matplotlib") is None or not spectra:
        return []
    from ..report.spectrum_figures import by_layer, explained_variance, rank_map

    if len(looks) > 1:
        return [
            *explained_variance(spectra, folder / "spectrum"),
            *by_layer(spectra, folder / "layers"),
        ]
    (found,) = spectra.values()
    return [
        *explained_variance(found, folder / "spectrum"),
        *rank_map(found, folder / "effective_rank"),
    ]
