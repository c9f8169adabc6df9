"""A folder of a converted Hugging Face model that opens as any other does.

save_pretrained(model, folder)

AutoModelForMaskedLM.from_pretrained(folder, trust_remote_code=True)     # elsewhere
primal_attention.from_pretrained(folder)
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..runs.files import read_object, write_bytes, write_json
from ..version import __version__
from .pretrained import require_transformers
from .record import layers_record, note
from .sites import expect_converted

MODULE = "modeling_primal"
CARD = "README.md"


def save_pretrained(
    model: Any, folder: Path | str, *, figures: Mapping[str, Any] | None = None, **options: Any
) -> Path:
    """`model.save_pretrained(folder, **options)`, and what lets Auto classes open it: `auto_map` in
    config.json with a module of two lines, and a model card, unless there is one. figures: lines
    of the card, {"masked accuracy": "0.95"}."""
    expect_converted(model)
    transformers = require_transformers()
    if not isinstance(model, transformers.PreTrainedModel):
        raise TypeError(f"model is a {type(model).__name__}; expected one of transformers, or save")
    note(model)
    folder = Path(folder)
    model.save_pretrained(folder, **options)
    classes = auto_classes(model)
    lines = [f'{name} = converted_class("{name}")' for name in dict.fromkeys(classes.values())]
    code = "from primal_attention.convert.pretrained import converted_class\n\n" + "\n".join(lines)
    write_bytes(folder / f"{MODULE}.py", f"{code}\n".encode())
    config = read_object(folder / "config.json")
    config["auto_map"] = {auto: f"{MODULE}.{name}" for auto, name in classes.items()}
    write_json(folder / "config.json", config)
    if not (folder / CARD).exists():
        write_bytes(folder / CARD, card(model, figures or {}).encode())
    return folder


def auto_classes(model: Any) -> dict[str, str]:
    """Auto classes that stand for a model's own class, or for its base: {auto class: class}."""
    transformers = require_transformers()
    kind = getattr(model.config, "model_type", None)
    found = {}
    for auto in sorted(name for name in dir(transformers) if name.startswith("AutoModel")):
        mapping = getattr(getattr(transformers, auto), "_model_mapping", None)
        names = getattr(mapping, "_model_mapping", {}).get(kind, ())
        names = (names,) if isinstance(names, str) else names
        own = type(model).__name__ in names
        if own or (auto == "AutoModel" and names):
            found[auto] = type(model).__name__ if own else names[0]
    return found


def card(model: Any, figures: Mapping[str, Any]) -> str:
    """What was converted, how it opens, and what is known about it."""
    name = type(model).__name__
    base = getattr(model.config, "_name_or_path", "") or name
    rows = [
        f"| `{layer['names'][0]}` | {_settings(layer['settings'])} |"
        for layer in layers_record(model)
    ]
    known = [f"- {what}: {value}" for what, value in figures.items()]
    known = known or ["- Nothing was measured: a conversion changes the function until trained."]
    head = ["---", "library_name: transformers", "tags:", "- primal-attention", "---"]
    return "\n".join([
        *head, f"# {Path(base).name}, with converted attentions", "",
        f"A `{name}` whose attentions were replaced by primal-attention {__version__}; needs the",
        "package (`pip install primal-attention`).", "",
        "```python", "import primal_attention as pa", "",
        'model = pa.from_pretrained("this folder")', "```", "",
        "| attention | now |", "|---|---|", *rows, "", "## What is known", "", *known, "",
    ])  # fmt: skip


def _settings(settings: Mapping[str, Any]) -> str:
    name = settings.get("attention", "primal")
    shown = ("weights", "rank", "feature_map", "causal")
    return ", ".join([name, *(f"{key}={settings[key]}" for key in shown if key in settings)])
