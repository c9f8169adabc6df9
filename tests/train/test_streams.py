"""Folders of runs of events and texts that are not whole: one sentence says what is wrong."""

import io
import json

import pytest

from primal_attention.runs.errors import RunError
from primal_attention.train.config import EventConfig, LanguageConfig
from primal_attention.train.streams import language_model, predict_events


@pytest.fixture
def run(tmp_path):
    def make(config, reader, weights=b"nothing"):
        (tmp_path / "config.json").write_text(json.dumps(config.to_dict()))
        (tmp_path / "reader.json").write_text(json.dumps(reader))
        (tmp_path / "best.safetensors").write_bytes(weights)
        return tmp_path

    return make


def test_events(run):
    config, small = EventConfig(task="events/csv"), {"reads": "events", "names": ["a", "b"]}
    with pytest.raises(RunError, match=r"best\.safetensors is damaged"):
        predict_events(run(config, small), None, io.StringIO())
    with pytest.raises(RunError, match=r"reader\.json is damaged: no 'names'"):
        predict_events(run(config, {"reads": "events"}), None, io.StringIO())


def test_texts(run):
    config = LanguageConfig(task="lm/text")
    small = {"reads": "text", "tokens": "words", "words": ["<unk>", "a"]}
    with pytest.raises(RunError, match=r"best\.safetensors is damaged"):
        language_model(run(config, small))
    with pytest.raises(RunError, match=r"reader\.json is damaged: no 'words'"):
        language_model(run(config, {"reads": "text", "tokens": "words"}))
