"""D4RL's files and Minari's folders: the formats as they are published, and broken ones."""

import numpy as np
import pytest

from primal_attention.tasks import DataError
from primal_attention.tasks.rl.files import read_d4rl, read_minari, write_d4rl
from primal_attention.tasks.rl.sets import get_rl_task

h5py = pytest.importorskip("h5py")

FIELDS = ("observations", "actions", "rewards", "terminals", "timeouts")


@pytest.fixture
def d4rl_file(tmp_path, make_trajectories):
    """A file with all that D4RL's have; fields may be left out (None) or changed."""
    data = make_trajectories()

    def write(name="hopper_medium-v2.hdf5", **changes):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        arrays = {field: getattr(data, field) for field in FIELDS} | changes
        with h5py.File(path, "w") as file:
            for field, array in arrays.items():
                if array is not None:
                    file.create_dataset(field, data=array, compression="gzip")
            file.create_dataset("next_observations", data=data.observations)
            file.create_dataset("infos/qpos", data=data.observations)
            file.create_dataset("metadata/algorithm", data=np.bytes_(b"SAC"))
        return path

    return write


def same(found, expected):
    for field in FIELDS:
        np.testing.assert_array_equal(getattr(found, field), getattr(expected, field))


def test_d4rl(d4rl_file, make_trajectories):
    same(read_d4rl(d4rl_file()), make_trajectories())


def test_what_is_written_is_read(tmp_path, make_trajectories):
    data = make_trajectories(ends="uu.")
    write_d4rl(tmp_path / "a.hdf5", data)
    same(read_d4rl(tmp_path / "a.hdf5"), data)
    assert [p.name for p in tmp_path.iterdir()] == ["a.hdf5"]


def test_numbers_in_place_of_booleans_and_columns_of_rewards(d4rl_file, make_trajectories):
    data = make_trajectories()
    path = d4rl_file(
        rewards=data.rewards[:, None].astype(np.float64),
        terminals=data.terminals.astype(np.uint8),
        timeouts=data.timeouts.astype(np.float32),
    )
    same(read_d4rl(path), data)


def test_timeouts_against_terminals(d4rl_file, make_trajectories):
    """A cut ends an episode as a final state does, and stays a cut."""
    data = read_d4rl(d4rl_file())
    assert data.lengths.tolist() == [5, 3, 4]
    assert np.flatnonzero(data.terminals).tolist() == [4, 11]
    assert np.flatnonzero(data.timeouts).tolist() == [7]


def test_a_file_without_timeouts_is_cut_at_the_horizon(d4rl_file):
    terminals = np.zeros(12, bool)
    terminals[4] = True
    data = read_d4rl(d4rl_file(timeouts=None, terminals=terminals), horizon=3)
    assert data.lengths.tolist() == [3, 2, 3, 3, 1]
    assert not (data.timeouts & data.terminals).any()


@pytest.mark.parametrize("field", ["observations", "actions", "rewards", "terminals"])
def test_a_missing_field(d4rl_file, field):
    with pytest.raises(DataError, match=f"lacks the field '{field}'"):
        read_d4rl(d4rl_file(**{field: None}))


def test_a_field_that_is_too_short(d4rl_file):
    with pytest.raises(DataError, match="rewards has 3 steps; expected 12"):
        read_d4rl(d4rl_file(rewards=np.zeros(3)))


def test_d4rl_of_wrong_shape(tmp_path, make_trajectories):
    path = tmp_path / "a.hdf5"
    data = make_trajectories()
    with h5py.File(path, "w") as file:
        file["observations"], file["actions"] = data.observations, data.actions
        file["rewards"], file["terminals"] = data.rewards, True
    with pytest.raises(DataError, match=r"a\.hdf5: terminals has shape \(\); expected 1 dimension"):
        read_d4rl(path)


def test_nan(d4rl_file, make_trajectories):
    actions = make_trajectories().actions.copy()
    actions[7, 1] = np.nan
    with pytest.raises(DataError, match="actions is not finite at step 7"):
        read_d4rl(d4rl_file(actions=actions))


def test_text_in_place_of_numbers(d4rl_file):
    with pytest.raises(DataError, match=r"rewards has type .*; expected numbers"):
        read_d4rl(d4rl_file(rewards=np.array([b"a"] * 12)))


@pytest.mark.parametrize("keep", [0, 0.5, 0.95])
def test_a_truncated_file(d4rl_file, keep):
    path = d4rl_file()
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content))])
    with pytest.raises(DataError, match="broken or not an HDF5 file"):
        read_d4rl(path)


def test_damaged_content(d4rl_file):
    path = d4rl_file()
    with h5py.File(path) as file:
        at = file["rewards"].id.get_chunk_info(0)
    content = bytearray(path.read_bytes())
    content[at.byte_offset : at.byte_offset + at.size] = b"\xff" * at.size
    path.write_bytes(bytes(content))
    with pytest.raises(DataError, match="rewards cannot be read"):
        read_d4rl(path)


def test_a_promise_of_terabytes_takes_no_memory(tmp_path):
    path = tmp_path / "a.hdf5"
    with h5py.File(path, "w") as file:
        file.create_dataset("observations", (10**12, 3), "f8", chunks=(1024, 3))
    with pytest.raises(DataError, match=r"observations promises .*, 0 bytes are there"):
        read_d4rl(path)


def test_no_file(tmp_path):
    with pytest.raises(DataError, match="does not exist; expected an HDF5 file"):
        read_d4rl(tmp_path / "nothing.hdf5")


# -- Minari ---------------------------------------------------------------------------------------


@pytest.fixture
def minari_folder(tmp_path, make_trajectories):
    """A set in Minari's layout. Episodes are numbered 0, 1, 10: their names are not in order."""
    data = make_trajectories(ends="tu.")

    def write(change=None):
        path = tmp_path / "data" / "main_data.hdf5"
        path.parent.mkdir()
        with h5py.File(path, "w") as file:
            for number, start, length in zip((0, 1, 10), data.starts, data.lengths, strict=True):
                span = slice(start, start + length)
                group = file.create_group(f"episode_{number}")
                last = np.zeros((1, 3), np.float32)
                group["observations"] = np.concatenate([data.observations[span], last])
                group["actions"], group["rewards"] = data.actions[span], data.rewards[span]
                group["terminations"] = data.terminals[span]
                group["truncations"] = data.timeouts[span]
                group.create_group("infos")
            if change is not None:
                change(file)
        return tmp_path

    return write


def test_minari(minari_folder, make_trajectories):
    found, expected = read_minari(minari_folder()), make_trajectories(ends="tu.")
    for field in ("observations", "actions", "rewards", "terminals"):
        np.testing.assert_array_equal(getattr(found, field), getattr(expected, field))
    assert found.lengths.tolist() == [5, 3, 4]
    assert np.flatnonzero(found.timeouts).tolist() == [7, 11]  # a group ends an episode


@pytest.mark.parametrize("field", ["observations", "rewards", "truncations"])
def test_minari_without_a_field(minari_folder, field):
    folder = minari_folder(lambda file: file["episode_1"].pop(field))
    with pytest.raises(DataError, match=f"episode_1 lacks the field '{field}'"):
        read_minari(folder)


def test_minari_with_nested_observations(minari_folder):
    def nest(file):
        del file["episode_0/observations"]
        file["episode_0/observations/achieved_goal"] = np.zeros((6, 3))

    with pytest.raises(DataError, match="observations is a group; expected one array"):
        read_minari(minari_folder(nest))


def test_minari_without_the_last_state(minari_folder):
    def shorten(file):
        rows = file["episode_0/observations"][:-1]
        del file["episode_0/observations"]
        file["episode_0/observations"] = rows

    with pytest.raises(DataError, match="observations has 5 rows; expected 6 with 5 rewards"):
        read_minari(minari_folder(shorten))


@pytest.mark.parametrize(
    ("field", "array", "message"),
    [
        (
            "observations",
            np.zeros((4, 5)),
            "observations has 5 columns; expected 3 as in episode_0",
        ),
        ("actions", np.zeros((3, 1)), "actions has 1 columns; expected 2 as in episode_0"),
        ("actions", np.zeros(3), r"actions has shape \(3,\); expected 2 dimensions"),
        ("rewards", 1.0, r"rewards has shape \(\); expected 1 dimension"),
        ("rewards", np.zeros((3, 2)), r"rewards has shape \(3, 2\); expected 1 dimension"),
        ("truncations", False, r"truncations has shape \(\); expected 1 dimension"),
    ],
)
def test_minari_of_wrong_shape(minari_folder, field, array, message):
    def change(file):
        del file[f"episode_1/{field}"]
        file[f"episode_1/{field}"] = array

    with pytest.raises(DataError, match=f"main_data.hdf5, episode_1: {message}"):
        read_minari(minari_folder(change))


def test_minari_with_columns_of_rewards(minari_folder, make_trajectories):
    def change(file):
        rewards = file["episode_1/rewards"][:]
        del file["episode_1/rewards"]
        file["episode_1/rewards"] = rewards[:, None]

    found = read_minari(minari_folder(change))
    np.testing.assert_array_equal(found.rewards, make_trajectories().rewards)


def test_minari_without_episodes(minari_folder):
    with pytest.raises(DataError, match="has no episodes"):
        read_minari(minari_folder(lambda file: file.clear()))


# -- where they lie -------------------------------------------------------------------------------


def test_the_newest_d4rl_file_is_taken(d4rl_file, tmp_path):
    task = get_rl_task("rl/hopper-medium")
    assert task.find(tmp_path) is None
    assert task.status(tmp_path).missing == ("train",)
    d4rl_file("d4rl/hopper_medium_replay-v2.hdf5")  # another set
    assert task.find(tmp_path) is None
    d4rl_file("d4rl/hopper_medium.hdf5")
    newest = d4rl_file("d4rl/hopper_medium-v2.hdf5")
    assert task.find(tmp_path) == newest
    assert len(task.episodes(tmp_path)) == 3


def test_data_that_is_not_here(tmp_path):
    with pytest.raises(DataError, match=r"rl/walker2d-medium is not here; expected .*collect"):
        get_rl_task("rl/walker2d-medium").episodes(tmp_path)
    with pytest.raises(ValueError, match="did you mean 'rl/hopper-medium'"):
        get_rl_task("rl/hoper-medium")
