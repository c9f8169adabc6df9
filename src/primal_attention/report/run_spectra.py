"""The spectrum and the KSVD diagnostics of the model of a run, or of a Hugging Face model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runs.errors import RunError
from ..runs.files import explained, read_json

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ..analysis import KSVDDiagnostics, Spectrum

WEIGHTS = "best.safetensors"


@dataclass(frozen=True)
class Look:
    """What was seen of a model; `diagnostics` is None without primal layers."""

    spectrum: Spectrum
    diagnostics: KSVDDiagnostics | None

    def to_dict(self) -> dict[str, Any]:
        """Numbers, lists and strings only: ready for JSON."""
        found = {"spectrum": self.spectrum.to_dict()}
        if self.diagnostics is not None:
            found["diagnostics"] = self.diagnostics.to_dict()
        return found

    def __str__(self) -> str:
        parts = [self.spectrum] if self.diagnostics is None else [self.spectrum, self.diagnostics]
        return "\n\n".join(map(str, parts))


def look_at(model: nn.Module, calls: Sequence[Any], *, exact_size: int = 2048) -> Look:
    """Run a model on calls (arguments, as `analysis.spectrum` takes them) and look at its
    attentions; softmax matrices up to `exact_size` exactly."""
    from ..analysis import ksvd_diagnostics, spectrum
    from ..attention import PrimalAttention
    from ..convert import Converted

    found = spectrum(model, calls, exact_size=exact_size)
    primal = any(isinstance(module, PrimalAttention | Converted) for module in model.modules())
    return Look(found, ksvd_diagnostics(model, calls) if primal else None)


def load_run(run: Path, inputs: int) -> tuple[nn.Module, list[tuple[Tensor, Tensor]]]:
    """The best weights of a run, and calls with the first `inputs` cases of the set that chose its
    epoch, one each. A RunError says what the run lacks."""
    from ..tasks import get_task
    from ..train.checkpoint import tensors_from_bytes
    from ..train.config import RunConfig
    from ..train.data import load_data

    if not (run / WEIGHTS).exists():
        raise RunError(f"{run} has no {WEIGHTS}; expected a run that ended an epoch")
    config = RunConfig.from_dict(read_json(run / "config.json"))
    data = load_data(config)
    model = get_task(config.task).model(config, data.reader.shape)
    with explained(f"read {run / WEIGHTS}"):
        model.load_state_dict(tensors_from_bytes((run / WEIGHTS).read_bytes()))
    batches = [data.selection.__getitems__([i]) for i in range(min(inputs, len(data.selection)))]
    return model, [(batch.inputs, batch.padding) for batch in batches]


def load_model(path: Path, inputs: int, text: Path | None) -> tuple[nn.Module, Sequence[Any]]:
    """The model in a folder, and the calls that show it `inputs` sequences."""
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


def _open(path: Path) -> nn.Module:
    """A Hugging Face model, converted or not."""
    from ..convert import from_pretrained, load
    from ..convert.folder import CONFIG, RECORD
    from ..convert.pretrained import require_transformers
    from ..convert.record import FIELD

    if (path / RECORD).exists():  # `save` or `primal convert` wrote it
        return load(path)
    if read_json(path / CONFIG).get(FIELD):  # a converted model's own save_pretrained did
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
        if look.diagnostics is not None:
            parts.append(f"{name}\n{look.diagnostics}")
    return "\n\n".join(parts)
