"""A trained run as a folder in the format of the Hugging Face Hub: push it, pull it, open it.

config.json        what the Hub reads: library, task, classes
run.json           the settings of the run
reader.json        how new data is read
model.safetensors  the weights
README.md          the model card, with the figures of the run
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ...runs.errors import RunError
from ...runs.extras import needs_extra
from ...runs.files import explained, read_json, write_bytes, write_json
from ...runs.folder import MEMORY
from ...version import __version__
from ..checkpoint import tensors_to_bytes
from ..run import read_result
from .model import TrainedModel, load_run

FILES = (
    "config.json", "run.json", "reader.json", "model.safetensors", MEMORY, "README.md",
    "result.json",
)  # fmt: skip
# what is read, and whether numbers are predicted: the Hub's own word for it, and a tag
PIPELINES = {
    ("images", False): ("image-classification", "images"),
    ("series", False): ("other", "time-series-classification"),
    ("series", True): ("other", "time-series-regression"),
    ("rows", False): ("tabular-classification", "tables"),
    ("rows", True): ("tabular-regression", "tables"),
}


def save_folder(model: TrainedModel, folder: Path | str) -> Path:
    """Write the folder; of one that is there, only these files are replaced."""
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file; expected a folder")
    settings = model.config.to_dict()
    for name in ("data", "test", "data_dir"):  # of this machine
        if name in settings:
            settings[name] = Path(settings[name]).name if settings[name] else settings[name]
    content = {
        "library_name": "primal-attention",
        "primal_attention_version": __version__,
        "task": model.config.task,
        "attention": list(model.config.attention),
        "predicts": "numbers" if model.predicts_values else "classes",
        "id2label": {str(i): name for i, name in enumerate(model.classes)},
    }
    result = read_json(model.path / "result.json") if _has_result(model) else None
    with explained(f"write into {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "config.json", content)
        write_json(folder / "run.json", settings)
        write_json(folder / "reader.json", model.reader.to_dict())
        write_bytes(folder / "model.safetensors", tensors_to_bytes(model.module.state_dict()))
        if memory := model.memory():
            write_bytes(folder / MEMORY, tensors_to_bytes(memory))
        if result is not None:
            write_json(folder / "result.json", result)
        write_bytes(folder / "README.md", card(model, result).encode())
    return folder


def push_run(run: Path | str, repository: str, **options: Any) -> str:
    """Upload a run to a repository of the Hub, `user/name`; gives its address. Needs the network,
    and a login of `huggingface_hub`. `options` are those of `HfApi.upload_folder`."""
    from tempfile import TemporaryDirectory

    with needs_extra("hf", "the Hub needs"):
        from huggingface_hub import HfApi
    api = HfApi()
    with TemporaryDirectory() as place:
        folder = save_folder(load_run(run), place)
        api.create_repo(repository, exist_ok=True)
        return str(api.upload_folder(repo_id=repository, folder_path=folder, **options))


def pull_run(repository: str, **options: Any) -> TrainedModel:
    """The model of a repository of the Hub; `options` are those of `snapshot_download`."""
    with needs_extra("hf", "the Hub needs"):
        from huggingface_hub import snapshot_download
    place = snapshot_download(repository, allow_patterns=list(FILES), **options)
    return load_run(place)


def card(model: TrainedModel, result: dict[str, Any] | None) -> str:
    """The model card: what it is, what is known about it, how it opens."""
    config = model.config
    kind = "numbers" if model.predicts_values else f"{len(model.classes)} classes"
    found = None if result is None else read_result(model.path)
    known = "Nothing is known about how good it is."
    if found is not None:
        known = f"{found.measure.text(found.measure.shown(found.figure))}: {found.meaning}."
    reads = model.reads
    shape = json.dumps(model.reader.shape)
    pipeline, tag = PIPELINES[reads, model.predicts_values]
    takes = (
        "a csv file with the columns of training"
        if reads == "rows"
        else "(cases, channels, timepoints)"
    )
    head = ["---", "library_name: primal-attention", f"pipeline_tag: {pipeline}", "tags:"]
    return "\n".join([
        *head, "- primal-attention", f"- {tag}", "---",
        f"# {model.path.name}", "",
        f"A model of {reads}, {kind}, trained by primal-attention {__version__} on "
        f"`{config.task}` with the attentions {', '.join(config.attention)}.", "",
        "## How good it is", "", known, "",
        "## How to use it", "",
        "```python", "import primal_attention as pa", "",
        'model = pa.load_run("this folder")', f"model.predict(X)  # {takes}",
        "```", "",
        f"It reads {reads} of the shape `{shape}`"
        + (f" and answers with: {', '.join(model.classes)}." if model.classes else "."), "",
    ])  # fmt: skip


def _has_result(model: TrainedModel) -> bool:
    return (model.path / "result.json").is_file()
