"""From words to points."""

import pytest

from primal_attention.train import RunConfig
from primal_attention.train.sweep import Range, grid, parse_space, trials, varied


def test_values_have_the_type_of_their_setting():
    space = parse_space(["rank=20,30", "eta=0,0.1", "weights=data,free", "clip=none,4"])
    assert space == {
        "rank": (20, 30),
        "eta": (0.0, 0.1),
        "weights": ("data", "free"),
        "clip": (None, 4.0),
    }
    assert parse_space(["rank-multi=5"]) == {"rank_multi": (5,)}


def test_ranges():
    space = parse_space(["rank=10:60", "lr=1e-4:1e-2:log"])
    assert space == {"rank": Range(10, 60), "lr": Range(1e-4, 1e-2, log=True)}
    with pytest.raises(ValueError, match="rank is a range; expected a list"):
        grid(space)


def test_grid_is_every_combination():
    points = grid(parse_space(["rank=20,30", "eta=0,0.5"]))
    assert points == [
        {"rank": 20, "eta": 0.0},
        {"rank": 20, "eta": 0.5},
        {"rank": 30, "eta": 0.0},
        {"rank": 30, "eta": 0.5},
    ]
    assert varied(parse_space(["rank=20,30", "epochs=3", "lr=0.1:0.2"])) == ["rank", "lr"]


def test_trials_take_all_points_before_the_next_seed(config):
    found = trials(config(), [{"rank": 1}, {"rank": 2}], [0, 5])
    assert [(c.rank, c.seed) for c in found] == [(1, 0), (2, 0), (1, 5), (2, 5)]
    assert isinstance(found[0], RunConfig)
    with pytest.raises(ValueError, match="rank is 0; expected"):
        trials(config(), [{"rank": 0}], [0])


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("rang=1,2", r"unknown setting 'rang' \(did you mean 'rank'\?\)"),
        ("seed=1,2", "unknown setting 'seed'"),
        ("rank", "the setting is 'rank'; expected name=value"),
        ("rank=", "the setting is 'rank='; expected name=value"),
        ("rank=2.5", r"rank is '2\.5'; expected an integer"),
        ("eta=0,x", "eta is 'x'; expected a number"),
        ("rank=3,3", "rank is '3,3'; expected each value once"),
        ("rank=9:3", "rank is '9:3'; expected low < high"),
        ("lr=0:1:log", "0 < low with log"),
        ("lr=0:1:lag", "expected a range low:high"),
    ],
)
def test_wrong_words(word, message):
    with pytest.raises(ValueError, match=message):
        parse_space([word])


@pytest.mark.parametrize("name", ["recipe", "protocol", "attention", "seed"])
def test_what_the_command_decides_is_not_swept(name):
    with pytest.raises(ValueError, match=f"unknown setting '{name}'"):
        parse_space([f"{name}=paper"])


def test_a_name_once():
    with pytest.raises(ValueError, match="rank is given twice"):
        parse_space(["rank=1", "rank=2"])
