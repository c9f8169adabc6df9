"""Models from local folders: the weights that are there, or an error; never others."""

import json
import re

import pytest
import torch
from torch.testing import assert_close

from primal_attention.convert import convert_, save
from primal_attention.convert.opening import open_model, parse_layers, read_batches

pytest.importorskip("transformers")


@pytest.fixture
def model(hugging_face):
    return hugging_face("bert").model.float()


@pytest.fixture
def bare(model, tmp_path):
    """A folder with the config alone."""
    model.config.architectures = ["BertForMaskedLM"]
    model.config.save_pretrained(tmp_path)
    return tmp_path


def assert_same(opened, model):
    found, trained = opened
    assert trained
    for name, tensor in model.state_dict().items():
        assert_close(found.state_dict()[name], tensor, rtol=0, atol=0)


@pytest.mark.parametrize("class_name", [None, "AutoModelForMaskedLM"])
def test_weights_in_torch_files(model, bare, class_name):
    torch.save(model.state_dict(), bare / "pytorch_model.bin")
    assert_same(open_model(bare, class_name), model)


def test_weights_in_several_torch_files(model, bare):
    named = model.state_dict()
    files = [f"pytorch_model-0000{number}-of-00002.bin" for number in (1, 2)]
    places = {name: files[number % 2] for number, name in enumerate(named)}
    for file in files:
        torch.save({n: t for n, t in named.items() if places[n] == file}, bare / file)
    index = {"metadata": {}, "weight_map": places}
    (bare / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    assert_same(open_model(bare), model)


def test_weights_in_safetensors_come_first(model, bare):
    torch.save({}, bare / "pytorch_model.bin")
    model.save_pretrained(bare)
    assert_same(open_model(bare), model)


class Trap:
    """Unpickled without care, it writes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_torch_files_run_nothing(bare):
    torch.save({"weight": Trap(bare / "ran")}, bare / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"a pickle of more than tensors.*expected .*safetensors"):
        open_model(bare)
    assert not (bare / "ran").exists()


@pytest.mark.parametrize("name", ["tf_model.h5", "flax_model.msgpack", "pytorch_model.fp16.bin"])
def test_weights_that_cannot_be_read_are_an_error(bare, name):
    (bare / name).write_bytes(b"")
    with pytest.raises(OSError, match=r"no file named model.safetensors"):
        open_model(bare)


def test_no_weights(bare):
    assert open_model(bare)[1] is False
    torch.save({}, bare / "training_args.bin")  # no weights
    assert open_model(bare)[1] is False


def test_a_converted_model_is_refused(model, tmp_path):
    convert_(model, rank=3)
    save(model, tmp_path / "ours")
    model.save_pretrained(tmp_path / "theirs")
    for name, opens in (
        ("ours", "which primal_attention.load opens"),
        ("theirs", "which primal_attention.from_pretrained opens"),
        ("theirs/config.json", "which primal_attention.from_pretrained opens"),
    ):
        with pytest.raises(ValueError, match=f"is converted already, {re.escape(opens)}"):
            open_model(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("last", "last"), ("-1", -1), ("2", 2), ("1:", slice(1, None)), (":-1", slice(None, -1)),
     (r"layer\.2", r"layer\.2")],
)  # fmt: skip
def test_parse_layers(text, expected):
    assert parse_layers(text) == expected


@pytest.mark.parametrize(
    "text", ["[]", "null", "{", "[" * 50_000], ids=["list", "null", "end", "deep"]
)
def test_a_config_that_is_no_object_is_named(text, tmp_path):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ValueError, match=r"config.json (holds a .*; expected|is not JSON)"):
        open_model(tmp_path)


def test_a_config_that_names_no_model(model, bare):
    model.save_pretrained(bare)
    config = json.loads((bare / "config.json").read_text())
    del config["model_type"]
    (bare / "config.json").write_text(json.dumps(config))
    assert_same(open_model(bare, "BertForMaskedLM"), model)
    with pytest.raises(ValueError, match="names no model_type; expected one, or the class"):
        open_model(bare)


@pytest.mark.parametrize("content", [b"", b"PK", b"\xff" * 40])
@pytest.mark.parametrize("name", ["a.npz", "a.safetensors"])
def test_batches_that_cannot_be_read_are_named(name, content, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{re.escape(name)} cannot be read: .*; expected arrays"):
        read_batches(tmp_path / name, 2)
