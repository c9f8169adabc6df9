"""An observer hears of the stores that the data of a run needs."""

import pytest

from primal_attention.tasks.stores import Building, tell
from primal_attention.train import Observer, train


@pytest.fixture
def stored(task, monkeypatch):
    """The tiny task, as if it built a store for every split."""
    load = type(task).load

    def building(self, data_dir=None, *, splits=("train", "test")):
        for split in splits:
            tell(f"tiny {split}", 3, 7)
        return load(self, data_dir, splits=splits)

    monkeypatch.setattr(type(task), "load", building)


class Listener(Observer):
    def __init__(self, error=None):
        self.heard, self.error = [], error

    def building(self, event):
        self.heard.append(event)
        if self.error is not None:
            raise self.error

    def run_started(self, start):
        self.heard.append("run_started")


@pytest.mark.usefixtures("stored")
def test_before_the_run_and_before_the_test_set(config, tmp_path):
    listener = Listener()
    train(config(epochs=1), root=tmp_path, observer=listener)
    begin, then = Building("tiny train", 3, 7), Building("tiny test", 3, 7)
    assert listener.heard == [begin, "run_started", begin, then]
    tell("later", 1, 1)
    assert len(listener.heard) == 4


@pytest.mark.usefixtures("stored")
def test_an_observer_that_fails_does_not_end_the_run(config, tmp_path):
    with pytest.warns(UserWarning, match=r"the observer failed in building\(\)"):
        assert train(config(epochs=1), root=tmp_path, observer=Listener(OSError("no"))).run.exists()


@pytest.mark.usefixtures("stored")
def test_ctrl_c_before_there_is_a_run(config, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(config(epochs=1), root=tmp_path / "runs", observer=Listener(KeyboardInterrupt()))
    assert not (tmp_path / "runs").exists()
