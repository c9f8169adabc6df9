"""Settings are checked, and written as they are read."""

import pytest

from primal_attention.bench import Plan, Settings, parse_candidates


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"what": "blok"}, "did you mean 'block'?"),
        ({"mode": "backward"}, "expected one of 'forward', 'training'"),
        ({"dtype": "float23"}, "did you mean 'float32'?"),
        ({"heads": 3}, "heads is 3; expected a divisor of width = 64"),
        ({"batch_size": 0}, "batch_size is 0; expected at least 1"),
        ({"repeats": -1}, "repeats is -1; expected at least 1"),
    ],
)
def test_wrong_settings(fields, expected):
    with pytest.raises(ValueError, match=r"expected|did you") as error:
        Settings(**fields)
    assert expected in str(error.value)


def test_settings_survive_json():
    settings = Settings(what="encoder", mode="forward", width=32, dtype="bfloat16")
    assert Settings.from_dict(settings.to_dict()) == settings
    assert settings.to_dict()["batch"] == 1  # as in files of the first version


def test_the_command_of_a_plan_names_everything():
    plan = Plan(Settings(width=32), parse_candidates("softmax,primal:free,rank=3"), (8, 16, 32), 5)
    assert plan.command == (
        "primal bench block --attention softmax,primal:free,rank=3 --lengths 8:32:x2 --width 32 "
        "--heads 2 --rank 20 --batch-size 1 --dtype float32 --device cpu --threads 2 --repeats 5 "
        "--pass training --cell-budget 5"
    )
    with pytest.raises(ValueError, match="cell_budget is 0; expected more than 0 seconds"):
        Plan(Settings(), parse_candidates("softmax"), (8,), 0)
    with pytest.raises(ValueError, match="device is 'gpu'; expected cpu, cuda"):
        Plan(Settings(device="gpu"), parse_candidates("softmax"), (8,), 1)
    mixed = parse_candidates("softmax+primal")
    assert Plan(Settings(what="encoder"), mixed, (8,), 1).candidates == mixed
    with pytest.raises(ValueError, match="attentions of 2 layers; expected one attention"):
        Plan(Settings(), mixed, (8,), 1)
