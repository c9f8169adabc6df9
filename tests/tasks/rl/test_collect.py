"""Recording in the real environment: repeatable, resumable, readable by Minari itself."""

import numpy as np
import pytest

from primal_attention.tasks import DataError
from primal_attention.tasks.rl import collect as module
from primal_attention.tasks.rl.collect import PENDULUM, cast_policies, collect, record
from primal_attention.tasks.rl.policies import Diluted, LinearPolicy, digest
from primal_attention.tasks.rl.sets import get_rl_task

pytest.importorskip("gymnasium")
pytest.importorskip("mujoco")
h5py = pytest.importorskip("h5py")

TASK = get_rl_task("rl/invertedpendulum-medium-replay")
FIELDS = ("observations", "actions", "rewards", "terminals", "timeouts")


def test_an_episode_depends_on_seed_and_number_alone():
    policies = [Diluted(PENDULUM["medium"])]
    together = record(TASK.environment, policies, [0, 1, 2], 5).trajectories("three")
    alone = record(TASK.environment, policies, [1], 5).trajectories("one")
    other = record(TASK.environment, policies, [1], 6).trajectories("one")
    for field in FIELDS:
        np.testing.assert_array_equal(getattr(together.subset([1]), field), getattr(alone, field))
    assert other.observations[0].tolist() != alone.observations[0].tolist()


def test_who_plays():
    medium, expert = PENDULUM["medium"], PENDULUM["expert"]
    names = ("medium", "medium-replay", "medium-expert")
    players = [cast_policies(get_rl_task(f"rl/invertedpendulum-{n}"), None) for n in names]
    assert players == [[medium], [Diluted(medium)], [medium, expert]]
    with pytest.raises(DataError, match=r"expected sac-Hopper\*\.npz in a folder of policies"):
        cast_policies(get_rl_task("rl/hopper-medium"), None)


def test_policies_from_files(tmp_path):
    np.savez(tmp_path / "sac-Walker2d-v5.npz", **{"actor.mu.weight": np.zeros((6, 17))})
    (found,) = cast_policies(get_rl_task("rl/walker2d-medium"), tmp_path)
    assert found.arrays["actor.mu.weight"].shape == (6, 17)
    np.savez(tmp_path / "ars-Walker2d-v3.npz", **{"action_net.weight": np.zeros((6, 17))})
    (first,) = cast_policies(get_rl_task("rl/walker2d-medium"), tmp_path)
    assert list(first.arrays) == ["action_net.weight"]
    with pytest.raises(DataError, match=r"no policy for rl/walker2d-medium-expert; expected trpo-"):
        cast_policies(get_rl_task("rl/walker2d-medium-expert"), tmp_path)


def test_named_policies_take_turns_diluted_or_not(tmp_path):
    np.savez(tmp_path / "ars-Hopper-v3.npz", **{"action_net.weight": np.zeros((3, 11))})
    np.savez(tmp_path / "sac-Hopper-v3.npz", **{"actor.mu.weight": np.ones((3, 11))})
    turns = ["sac", "ars", "sac"]
    plain = cast_policies(get_rl_task("rl/hopper-medium-expert"), tmp_path, turns)
    assert [list(p.arrays) for p in plain] == [
        ["actor.mu.weight"], ["action_net.weight"], ["actor.mu.weight"]
    ]  # fmt: skip
    replay = cast_policies(get_rl_task("rl/hopper-medium-replay"), tmp_path, turns)
    assert all(isinstance(p, Diluted) for p in replay)
    assert digest([p.policy for p in replay]) == digest(plain)


def test_a_policy_trained_for_the_recording_plays_the_medium_part(tmp_path):
    for name in ("ars", "sac", "trpo"):
        np.savez(tmp_path / f"{name}-Walker2d.npz", **{"action_net.weight": np.zeros((6, 17))})
    trained = LinearPolicy(np.ones((6, 17)))
    (medium,) = cast_policies(get_rl_task("rl/walker2d-medium"), tmp_path, None, trained)
    assert medium is trained
    both = get_rl_task("rl/walker2d-medium-expert")
    first, expert = cast_policies(both, tmp_path, None, trained)
    assert first is trained
    assert expert is not trained
    named = cast_policies(both, tmp_path, ["sac", "ars"], trained)
    assert [policy is trained for policy in named] == [True, False]
    with pytest.raises(ValueError, match="algorithms is ars,trpo; expected 'sac' among them"):
        cast_policies(both, tmp_path, ["ars", "trpo"], trained)
    (own,) = cast_policies(get_rl_task("rl/invertedpendulum-medium"), None, None, trained)
    assert own is trained


def test_a_relative_folder(tmp_path, monkeypatch):
    pytest.importorskip("minari")
    monkeypatch.chdir(tmp_path)
    collect(TASK, "data", episodes=2)
    assert len(TASK.episodes(tmp_path / "data")) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_what_a_set_is_written_with_is_needed_before_the_recording(tmp_path, monkeypatch):
    def need(module, what):
        raise ImportError(f"{what} need {module}")

    monkeypatch.setattr(module, "need", need)
    monkeypatch.setattr(module, "record", None)
    with pytest.raises(ImportError, match="recorded episodes need minari"):
        collect(TASK, tmp_path, episodes=2)


@pytest.mark.parametrize("form", ["minari", "d4rl"])
def test_an_interrupted_recording_goes_on(tmp_path, monkeypatch, form):
    if form == "minari":
        pytest.importorskip("minari")
    monkeypatch.setattr(module, "PART", 2)
    played = []

    def counted(environment, policies, episodes, seed):
        played.extend(episodes)
        return record(environment, policies, episodes, seed)

    monkeypatch.setattr(module, "record", counted)

    def interrupt(done, total):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        collect(TASK, tmp_path / "a", episodes=7, form=form, progress=interrupt)
    assert TASK.find(tmp_path / "a") is None
    assert played == [0, 1, 2, 3]
    told = []
    made = collect(
        TASK, tmp_path / "a", episodes=7, form=form, progress=lambda *now: told.append(now)
    )
    assert played == [0, 1, 2, 3, 4, 5, 6]
    assert told[-1] == (4, 4)
    collect(TASK, tmp_path / "b", episodes=7, form=form)
    resumed, straight = TASK.episodes(tmp_path / "a"), TASK.episodes(tmp_path / "b")
    assert resumed.fingerprint() == straight.fingerprint()
    assert (made.episodes, made.steps) == (7, resumed.steps)
    assert made.best_decile == pytest.approx(resumed.best_decile())
    assert not list((tmp_path / "a").rglob(".*"))
    with pytest.raises(DataError, match="exists already"):
        collect(TASK, tmp_path / "a", episodes=7, form=form)


def test_a_recording_goes_on_with_the_same_policies_only(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PART", 1)

    def interrupt(done, total):
        if done == 1:
            raise KeyboardInterrupt

    def policy(number):
        weight = {"action_net.weight": np.full((1, 4), number)}
        np.savez(tmp_path / "ars-InvertedPendulum.npz", **weight)
        return {"policies": tmp_path, "algorithms": ["ars"], "form": "d4rl", "episodes": 2}

    with pytest.raises(KeyboardInterrupt):
        collect(TASK, tmp_path / "a", **policy(0.0), progress=interrupt)
    collect(TASK, tmp_path / "a", **policy(1.0))
    collect(TASK, tmp_path / "b", **policy(1.0))
    assert (
        TASK.episodes(tmp_path / "a").fingerprint() == TASK.episodes(tmp_path / "b").fingerprint()
    )


def test_minari_reads_what_is_written(tmp_path, monkeypatch):
    minari = pytest.importorskip("minari")
    collect(TASK, tmp_path, episodes=3)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    theirs = minari.load_dataset("collected/invertedpendulum/medium-replay-v0")
    ours = TASK.episodes(tmp_path)
    assert theirs.total_episodes == len(ours) == 3
    for number, episode in enumerate(theirs.iterate_episodes()):
        own = ours.subset([number])
        np.testing.assert_allclose(episode.observations[:-1], own.observations)
        np.testing.assert_array_equal(episode.actions, own.actions)
        np.testing.assert_array_equal(episode.terminations, own.terminals)
        # the last state is the one after the last action: it fell
        assert abs(episode.observations[-1][1]) > 0.2
    assert theirs.recover_environment().spec.id == "InvertedPendulum-v5"


def test_wrong_arguments(tmp_path):
    with pytest.raises(ValueError, match="algorithms is empty; expected names such as 'sac'"):
        collect(TASK, tmp_path, algorithms=[])
    with pytest.raises(DataError, match=r"expected td3-InvertedPendulum\*\.npz in "):
        collect(TASK, tmp_path, policies=tmp_path, algorithms=["td3"])
    with pytest.raises(ValueError, match="form is 'hdf'; expected one of 'minari', 'd4rl'"):
        collect(TASK, tmp_path, form="hdf")
    with pytest.raises(ValueError, match="episodes is 0"):
        collect(TASK, tmp_path, episodes=0)
