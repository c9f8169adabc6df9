"""`primal data` and `primal list`."""

import json

from primal_attention import available_attentions
from primal_attention.tasks import available_tasks


def test_data_says_what_is_here_and_how_to_get_the_rest(primal):
    done = primal("data")
    assert done.code == 0
    assert done.err == ""
    lines = {line.split()[0]: line for line in done.out.splitlines() if line.startswith("uea/")}
    assert " yes " in lines["uea/JapaneseVowels"]
    assert "270/370 cases" in lines["uea/JapaneseVowels"]
    assert " no " in lines["uea/Heartbeat"]
    assert "PRIMAL_ATTENTION_DATA" in done.out


def test_data_as_json(primal, tmp_path):
    found = {entry["task"]: entry for entry in json.loads(primal("data", "--json").out)}
    assert set(found) == {*available_tasks()}
    assert found["uea/BasicMotions"]["present"]
    assert set(found["uea/BasicMotions"]["places"]) == {"train", "test"}
    missing = found["uea/Heartbeat"]
    assert not missing["present"]
    assert missing["missing"] == ["train", "test"]
    assert missing["how_to_get"]


def test_data_dir_is_looked_into(primal, tmp_path):
    place = tmp_path / "sets" / "uea" / "Heartbeat"
    place.mkdir(parents=True)
    for split in ("TRAIN", "TEST"):
        (place / f"Heartbeat_{split}.ts").touch()
    found = json.loads(primal("data", "--data-dir", tmp_path / "sets", "--json").out)
    heartbeat = next(entry for entry in found if entry["task"] == "uea/Heartbeat")
    assert heartbeat["present"]
    assert heartbeat["places"]["train"] == str(place / "Heartbeat_TRAIN.ts")


def test_list(primal):
    done = primal("list")
    assert done.code == 0
    for name in (*available_attentions(), *available_tasks(), "paper", "O(N^2)"):
        assert name in done.out
    assert done.out.splitlines()[-1].startswith("native kernels: ")


def test_list_as_json(primal):
    found = json.loads(primal("list", "--json").out)
    assert [a["name"] for a in found["attentions"]] == list(available_attentions())
    assert [t["name"] for t in found["tasks"]] == list(available_tasks())
    assert "rl/hopper-medium" in available_tasks()
    primal_facts = next(a for a in found["attentions"] if a["name"] == "primal")
    assert primal_facts["streaming"] is True
    assert "rank" in primal_facts["options"]
    assert {"default", "paper"} <= {r for t in found["tasks"] for r in t["recipes"]}
