"""Policies trained here: read again, trained once, continued."""

import pytest

pytest.importorskip("gymnasium")
pytest.importorskip("mujoco")
pytest.importorskip("stable_baselines3")

from stable_baselines3 import SAC

from primal_attention.tasks.rl import sac as module
from primal_attention.tasks.rl.collect import cast_policies, record
from primal_attention.tasks.rl.sac import train_sac
from primal_attention.tasks.rl.sets import get_rl_task

TASK = get_rl_task("rl/invertedpendulum-medium")
STEPS = 20  # fewer than SAC waits before it learns


@pytest.mark.slow
def test_a_policy_trained_here_is_read_again(tmp_path):
    path = train_sac(TASK.environment, tmp_path, steps=120)
    (player,) = cast_policies(TASK, path.parent)
    assert record(TASK.environment, [player], [0], 0).trajectories("one").steps > 1


def test_a_policy_is_trained_once(tmp_path, monkeypatch):
    path = train_sac(TASK.environment, tmp_path, steps=STEPS, seed=3)
    assert path.name == "sac-InvertedPendulum-v5-20-3.npz"
    content = path.read_bytes()
    other = train_sac(TASK.environment, tmp_path, steps=STEPS + 1, seed=3)
    monkeypatch.setattr(SAC, "learn", None)
    assert train_sac(TASK.environment, tmp_path, steps=STEPS, seed=3) == path
    assert path.read_bytes() == content
    assert sorted(tmp_path.iterdir()) == [path, other]


def test_an_interrupted_training_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "CHECKPOINT_STEPS", 5)

    def interrupt(done, total):
        if done == 13:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_sac(TASK.environment, tmp_path, steps=STEPS, progress=interrupt)
    (checkpoints,) = tmp_path.iterdir()
    assert checkpoints.name.startswith(".")
    assert [path.name for path in checkpoints.iterdir()] == ["10"]
    (checkpoints / ".tmp-15-0").mkdir()  # of a writer that was killed
    held, learn = [], SAC.learn

    def counted(learner, *given, **options):
        held.append(learner.replay_buffer.size())
        return learn(learner, *given, **options)

    monkeypatch.setattr(SAC, "learn", counted)
    told = []
    path = train_sac(
        TASK.environment, tmp_path, steps=STEPS, progress=lambda *now: told.append(now)
    )
    assert told == [(done, STEPS) for done in range(11, STEPS + 1)]
    assert held == [9]  # the step of a checkpoint is not in it yet
    assert list(tmp_path.iterdir()) == [path]
