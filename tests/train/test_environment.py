"""What a run writes about the machine and the packages it uses."""

from importlib import metadata

from primal_attention.train import environment as room
from primal_attention.train.environment import PACKAGES, environment


def test_versions_are_those_that_are_installed_and_asked_for_once(monkeypatch):
    """A process that trains a thousand times keeps the memory of one look-up."""
    asked = []

    def version(package):
        asked.append(package)
        return metadata.version(package)

    room._version.cache_clear()
    monkeypatch.setattr(room, "version", version)
    first, second = environment(), environment()
    assert first == second
    assert first["torch"] == metadata.version("torch")
    assert sorted(asked) == sorted(PACKAGES)
