"""Spectra of models in folders, of runs and of Hugging Face: looked at, written, drawn, told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runs.errors import RunError
from ..runs.extras import is_installed
from ..runs.files import explained, read_object, write_json
from .run_spectra import Look, load_run, look_at
from .spectrum_figures import by_layer, explained_variance, rank_map

if TYPE_CHECKING:
    from torch import nn


def write_spectra(
    models: Mapping[str, Path],
    folder: Path,
    *,
    inputs: int,
    text: Path | None,
    exact_size: int,
    groups: str | None = None,
) -> tuple[dict[str, Look], dict[str, Any], list[Path]]:
    """Look at models, {name: folder}, and write spectrum.json and pictures: what was seen, as
    JSON has it, and the files."""
    looks = {}
    for name, path in models.items():
        model, calls = load_model(path, inputs, text)
        parts = None if groups is None else groups_of(calls, groups, path)
        looks[name] = look_at(model, calls, exact_size=exact_size, groups=parts)
    seen = {name: {"model": str(models[name])} | look.to_dict() for name, look in looks.items()}
    result: dict[str, Any] = {"models": seen} if len(seen) > 1 else next(iter(seen.values()))
    with explained(f"write into {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "spectrum.json", result)
    return looks, result, [folder / "spectrum.json", *draw_spectra(looks, folder)]


def draw_spectra(looks: Mapping[str, Look], folder: Path) -> list[Path]:
    """Pictures, where matplotlib is at hand."""
    spectra = {name: look.spectrum for name, look in looks.items() if look.spectrum.layers}
    if not is_installed("matplotlib") or not spectra:
        return []
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


def load_model(path: Path, inputs: int, text: Path | None) -> tuple[nn.Module, Sequence[Any]]:
    """The model in a folder, and the calls that show it `inputs` sequences."""
    seeds = sorted(path.glob("seed-*/config.json"))
    if seeds and not (path / "config.json").exists():  # of several seeds, the first
        path = seeds[0].parent
    if not (path / "config.json").exists():
        raise RunError(
            f"{path} has no config.json; expected the folder of a run or of a Hugging Face model"
        )
    if "model_type" in read_object(path / "config.json"):
        return _hugging_face(path, inputs, text)
    if text is not None:
        raise RunError(f"--text was given with the run {path}; expected a Hugging Face model")
    return load_run(path, inputs)


def _hugging_face(path: Path, inputs: int, text: Path | None) -> tuple[nn.Module, Sequence[Any]]:
    from ..convert.pretrained import require_transformers

    if text is None:
        raise RunError(f"{path} is a Hugging Face model; expected --text with one input a line")
    lines = [line for line in text.read_text().splitlines() if line.strip()][:inputs]
    if not lines:
        raise RunError(f"{text} holds no text; expected one input a line")
    transformers = require_transformers()
    tokenizer = transformers.AutoTokenizer.from_pretrained(path, local_files_only=True)
    calls = [dict(tokenizer(line, return_tensors="pt", truncation=True)) for line in lines]
    return _open(path), calls


def groups_of(calls: Sequence[Any], groups: str, path: Path) -> Any:
    """As `attention_flow` takes them: a number of equal parts, or for each call what lies before,
    between and after the places of a token."""
    import torch

    if groups.isdecimal() and int(groups) > 0:
        return int(groups)
    if not isinstance(calls[0], Mapping):
        raise RunError(f"--groups is {groups!r}; expected a number of equal parts, above 0")
    from ..convert.pretrained import require_transformers

    tokenizer = require_transformers().AutoTokenizer.from_pretrained(path, local_files_only=True)
    token = tokenizer.convert_tokens_to_ids(groups)
    if token is None or token == tokenizer.unk_token_id:
        raise RunError(f"--groups is {groups!r}; expected a number, or a token of {path}")
    places = [call["input_ids"][0] == token for call in calls]
    return [torch.where(here, -1, here.cumsum(0)).numpy() for here in places]


def _open(path: Path) -> nn.Module:
    """A Hugging Face model, converted or not."""
    from ..convert import from_pretrained, load
    from ..convert.folder import CONFIG, RECORD
    from ..convert.pretrained import require_transformers
    from ..convert.record import FIELD

    if (path / RECORD).exists():  # `save` or `primal convert` wrote it
        return load(path)
    if read_object(path / CONFIG).get(FIELD):  # a converted model's own save_pretrained did
        return from_pretrained(path)
    model: nn.Module = require_transformers().AutoModel.from_pretrained(path, local_files_only=True)
    return model


def tell(looks: Mapping[str, Look]) -> str:
    """One model with its diagnostics, or several side by side."""
    from ..analysis.spectra import comparison

    if len(looks) == 1:
        return str(next(iter(looks.values())))
    spectra = {name: look.spectrum for name, look in looks.items()}
    parts = [comparison(spectra)]
    for name, look in looks.items():
        skipped = look.spectrum.skipped.items()
        parts += [f"{name}: {layer} was skipped: {why}" for layer, why in skipped]
        for more in (look.diagnostics, look.flow):
            if more is not None:
                parts.append(f"{name}\n{more}")
    return "\n\n".join(parts)
