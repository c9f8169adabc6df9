"""Attentions and tasks of other packages, by their entry points, in a process of their own."""

import os
import subprocess
import sys

import pytest

from primal_attention import tasks

PLUGIN = """
from torch import nn
from primal_attention.attention import register
from primal_attention.tasks import get_task, register_task
import dataclasses

FACTS = dict.fromkeys(["causal", "cross", "streaming", "any_length"], False)

@register("echo", paper="none", cost="O(N)", **FACTS)
class Echo(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()

register_task(dataclasses.replace(get_task("uea/BasicMotions"), name="own/motions"))
"""


@pytest.fixture
def package(tmp_path):
    """A folder with an installed package, as pip would leave it."""
    (tmp_path / "other.py").write_text(PLUGIN, encoding="utf-8")
    info = tmp_path / "other-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[primal_attention]\nmine = other\nlost = not_there\n")
    return tmp_path


def python(package, code):
    path = os.pathsep.join([str(package), *sys.path])
    run = subprocess.run(
        [sys.executable, "-W", "always", "-c", code], env=os.environ | {"PYTHONPATH": path},
        capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return run


USER = """
import sys
import primal_attention as pa
from primal_attention.tasks import available_tasks, get_task
pa.make_attention("linear", 4, 2)
print("other" in sys.modules)  # known names do not import plugins
print(pa.make_attention("echo", 4, 2))
print(get_task("own/motions").name in available_tasks())
"""


def test_plugins_are_found_by_name_and_a_broken_one_is_named(package):
    run = python(package, USER)
    assert run.stdout.splitlines() == ["False", "Echo()", "True"]
    assert run.stderr.count("RuntimeWarning: the plugin 'lost' (not_there) cannot be loaded") == 1


def test_a_task_is_registered_once(monkeypatch):
    monkeypatch.setattr(tasks, "_tasks", dict(tasks._tasks))
    with pytest.raises(ValueError, match="'uea/Handwriting' is registered twice"):
        tasks.register_task(tasks.get_task("uea/Handwriting"))
