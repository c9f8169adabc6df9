"""Hugging Face models on disk: our folders, and `save_pretrained`; read in a fresh process."""

import json
import subprocess
import sys

import pytest
import torch
from torch.testing import assert_close

import primal_attention as pa
from primal_attention.convert import (
    convert_,
    converted_layers,
    from_pretrained,
    load,
    plan,
    pretrained_class,
    revert_,
    save,
)  # fmt: skip
from primal_attention.convert.opening import open_model

transformers = pytest.importorskip("transformers")

MODELS = [
    "bert", "roberta", "distilbert", "vit", "deit", "gpt2", "decision", "llama", "qwen2", "qwen3",
]  # fmt: skip
READER = """
import sys
from pathlib import Path
import torch
from torch.testing import assert_close
from safetensors.torch import load_file
import primal_attention.convert as convert
for folder in map(Path, sys.argv[1:]):
    batch = load_file(folder / "batch.safetensors")
    expected = load_file(folder / "output.safetensors")["out"]
    for model in (convert.load(folder / "ours"), convert.from_pretrained(folder / "theirs")):
        out = model.double().eval()(**batch)
        out = out.action_preds if hasattr(out, "action_preds") else out.logits
        out = out.reshape(expected.shape)
        # the place of a tensor in memory may decide about the last bit
        print(folder.name, bool((out - expected).abs().max() < 1e-14 * expected.abs().max()))
"""


@pytest.mark.parametrize("name", MODELS)
def test_equal_outputs_after_loading(hugging_face, awaken, tmp_path, name):
    model, batch, _, out, _, _ = hugging_face(name)
    expected = out(awaken(convert_(model, rank=3)), batch)
    save(model, tmp_path / "ours")
    model.save_pretrained(tmp_path / "theirs")
    for loaded in (load(tmp_path / "ours"), from_pretrained(tmp_path / "theirs")):
        assert_close(out(loaded.eval(), batch), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.slow
def test_equal_outputs_in_a_fresh_process(hugging_face, awaken, tmp_path):
    """Both ways of saving, every adapter, one process that has seen nothing before."""
    from safetensors.torch import save_file

    for name in MODELS:
        model, batch, _, out, _, _ = hugging_face(name)
        awaken(convert_(model, rank=3))
        folder = tmp_path / name
        save(model, folder / "ours")
        model.save_pretrained(folder / "theirs")
        save_file({n: t.contiguous() for n, t in batch.items()}, folder / "batch.safetensors")
        save_file({"out": out(model, batch).contiguous()}, folder / "output.safetensors")
    done = subprocess.run(
        [sys.executable, "-c", READER, *(str(tmp_path / name) for name in MODELS)],
        capture_output=True, text=True, timeout=250,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.split()[0] in MODELS]
    assert lines == [f"{name} True" for name in MODELS for _ in range(2)]


def test_a_config_tells_of_the_conversion(hugging_face, tmp_path):
    model = hugging_face("bert").model
    convert_(model, rank=3)
    model.save_pretrained(tmp_path)
    (layer,) = json.loads((tmp_path / "config.json").read_text())["primal_attention"]["layers"]
    assert layer["names"] == ["bert.encoder.layer.1.attention"]
    assert layer["settings"]["rank"] == 3
    loaded = from_pretrained(tmp_path)
    with pytest.raises(ValueError, match="loaded without its base"):
        revert_(loaded)
    assert isinstance(loaded, type(model))
    assert pretrained_class(type(model)) is type(loaded)


def test_bases_for_load(hugging_face, awaken, tmp_path):
    """A folder, a config, a model, nothing."""
    model, batch, _, out, _, _ = hugging_face("llama")
    model.save_pretrained(tmp_path / "base")
    plain, config = out(model, batch), type(model.config).from_pretrained(tmp_path / "base")
    awaken(convert_(model, rank=3))
    expected = out(model, batch)
    save(model, tmp_path / "saved")
    for base in (tmp_path / "base", str(tmp_path / "base"), config, None):
        loaded = load(tmp_path / "saved", base=base).eval()
        assert torch.equal(out(loaded, batch), expected)
        known = converted_layers(loaded)[0].conversion.original is not None
        assert known == (base not in (config, None))
        if known:
            assert torch.equal(out(revert_(loaded), batch), plain)
    save(model, tmp_path / "small", weights="converted")
    assert torch.equal(
        out(load(tmp_path / "small", base=tmp_path / "base").eval(), batch), expected
    )
    with pytest.raises(ValueError, match="expected base to be a model"):
        load(tmp_path / "small", base=config)


def test_a_converted_folder_is_no_base(hugging_face, tmp_path):
    """A plain class would start its attentions at random, and call them the originals."""
    model = convert_(hugging_face("bert").model, rank=3)
    save(model, tmp_path / "ours")
    model.save_pretrained(tmp_path / "theirs")
    with pytest.raises(
        ValueError, match=r"converted already, which primal_attention\.from_pretrained"
    ):
        load(tmp_path / "ours", base=tmp_path / "theirs")


def test_a_wrong_config_is_refused(hugging_face, tmp_path):
    model = hugging_face("bert").model
    save(convert_(model, rank=3), tmp_path)
    other = transformers.BertConfig(**{**model.config.to_dict(), "intermediate_size": 40})
    with pytest.raises(ValueError, match="another model than the one that was converted"):
        load(tmp_path, base=other)
    with pytest.raises(TypeError, match="base is a int"):
        load(tmp_path, base=3)


WRONG = {  # values of a config.json
    "a text for a number": ("num_attention_heads", "x"),
    "a list for a number": ("num_hidden_layers", [1]),
    "a list for names": ("id2label", [1]),
    "an activation that is none": ("hidden_act", "x"),
}
RECORDS = {  # conversions in a config.json
    "a list for a number": {"settings": {"rank": [1]}},
    "a text for a number": {"settings": {"dropout": "x"}},
    "a number for names": {"names": [1]},
    "no settings": {"settings": None},
}


@pytest.mark.parametrize(("field", "value"), WRONG.values(), ids=WRONG)
def test_wrong_values_in_a_config_are_named(hugging_face, tmp_path, field, value):
    model = convert_(hugging_face("bert").model, rank=3)
    save(model, tmp_path / "ours")
    model.save_pretrained(tmp_path / "theirs")
    for folder, opened in (("ours", load), ("theirs", from_pretrained)):
        path = tmp_path / folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
        with pytest.raises(ValueError, match=rf"{folder}.* cannot be read: \w+: ") as error:
            opened(path.parent)
        assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("change", RECORDS.values(), ids=RECORDS)
def test_a_wrong_conversion_in_a_config_is_named(hugging_face, tmp_path, change):
    convert_(hugging_face("bert").model, rank=3).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    (layer,) = config["primal_attention"]["layers"]
    for name, value in change.items():
        layer[name] = {**layer[name], **value} if isinstance(value, dict) else value
    path.write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"config.json (is damaged|cannot be read): ") as error:
        from_pretrained(tmp_path)
    assert len(str(error.value).splitlines()) == 1


def test_a_folder_stands_for_its_model(hugging_face, tmp_path):
    model = hugging_face("bert")[0]
    model.save_pretrained(tmp_path)
    assert str(plan(tmp_path, rank=3)) == str(plan(model, rank=3))
    found = convert_(str(tmp_path), rank=3)
    assert type(found).__name__ == type(model).__name__
    assert len(converted_layers(found)) == 1


def test_a_class_where_the_config_names_none(hugging_face, tmp_path):
    model, batch, _, out, _, _ = hugging_face("bert")
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for field in ("model_type", "architectures"):
        del config[field]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"cannot be opened: .*or the class of the model"):
        from_pretrained(tmp_path)
    found = from_pretrained(tmp_path, class_name=type(model).__name__)
    assert_close(out(found.to(model.dtype).eval(), batch), out(model, batch))
    model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="holds a BertForNothing; expected a class"):
        from_pretrained(tmp_path, class_name="BertForNothing")


def test_what_is_no_module_is_named():
    with pytest.raises(TypeError, match="model is 3; expected a module"):
        plan(3)
    with pytest.raises(TypeError, match="model is 3; expected a module"):
        pa.adapt_(3, [])


def test_a_path_that_is_not_there(tmp_path):
    for open_it in (pa.from_pretrained, pa.plan, open_model):
        with pytest.raises(ValueError, match="there does not exist; expected a folder"):
            open_it(str(tmp_path / "not" / "there"))
