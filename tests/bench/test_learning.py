"""Equal seconds for every attention, on tasks that need it."""

import json
from dataclasses import replace

import pytest
import torch

from primal_attention.bench.learning import (
    STARTS,
    Lesson,
    Point,
    SmallNetwork,
    learn,
    make_lessons,
    read_lessons,
    run_lessons,
)

TIED = "primal:tied,feature_map=elu"
SHORT = Lesson(attention="none", length=16, seconds=0.05, batch=2, width=16, heads=2, rank=4)


@pytest.mark.parametrize("task", ["lookup", "counting"])
@pytest.mark.parametrize("attention", [TIED, "primal:free", "linear:feature_map=elu", "softmax"])
def test_a_lesson_is_learned_for_its_seconds(attention, task):
    lesson = Lesson(
        attention=attention, task=task, length=16, seconds=0.05, batch=2, width=16, heads=2, rank=4,
        eta=0.1 if "primal" in attention else 0.0,
    )  # fmt: skip
    seen = []
    points = learn(lesson, seen.append)
    assert seen == points
    assert points[-1].seconds >= 0.05
    assert [p.steps for p in points] == sorted({p.steps for p in points})
    assert all(0 <= p.accuracy <= 1 for p in points)


def test_network_answers_at_the_places():
    torch.manual_seed(0)
    task = SHORT.made_task
    network = SmallNetwork(SHORT, task).eval()
    questions = task.draw(3, 20, torch.Generator().manual_seed(0))
    found = network(questions.tokens, questions.places)
    assert found.shape == (3, 4, task.classes)
    turned = network(questions.tokens, questions.places.flip(1))
    assert torch.allclose(turned, found.flip(1), atol=1e-6)


@pytest.mark.parametrize("attention", [TIED, "primal:data", "linear", "softmax"])
@pytest.mark.parametrize("start", STARTS)
def test_queries_and_keys_start_as_asked(attention, start):
    lesson = replace(SHORT, attention=attention, start=start)
    layer = SmallNetwork(lesson, lesson.made_task).layers[0].self_attn
    queries, keys = layer.in_proj_weight[: 2 * lesson.width].tensor_split(2)
    alike = start == "symmetric" or (start == "own" and attention == TIED)
    assert torch.equal(queries, keys) == alike
    assert float(queries.detach().std()) == pytest.approx(float(keys.detach().std()), rel=0.2)


def test_an_attention_without_keys_keeps_its_start():
    torch.manual_seed(0)
    own = SmallNetwork(SHORT, SHORT.made_task).state_dict()
    torch.manual_seed(0)
    asked = SmallNetwork(replace(SHORT, start="symmetric"), SHORT.made_task).state_dict()
    assert all(torch.equal(asked[name], value) for name, value in own.items())


def test_a_curriculum_doubles_up_to_the_length():
    lesson = Lesson(attention="none", length=1000, curriculum=True)
    lengths = [lesson.length_at(share / 100) for share in range(101)]
    assert lengths == sorted(lengths)
    assert (lengths[0], lengths[49], lengths[50], lengths[-1]) == (64, 512, 1000, 1000)
    assert set(lengths) == {64, 128, 256, 512, 1000}
    plain = Lesson(attention="none", length=1000)
    assert {plain.length_at(share) for share in (0.0, 0.3, 1.0)} == {1000}


def test_runs_are_kept_and_not_run_again(tmp_path):
    path = tmp_path / "found" / "lessons.jsonl"
    lessons = make_lessons([TIED, "none"], [0, 1], [0.0, 0.1], SHORT)
    assert [(x.attention, x.eta, x.seed) for x in lessons] == [
        *((TIED, eta, seed) for eta in (0.0, 0.1) for seed in (0, 1)),
        ("none", 0.0, 0), ("none", 0.0, 1),
    ]  # fmt: skip
    seen = []
    found = run_lessons(lessons[-2:], path, lambda lesson, point: seen.append(lesson.seed))
    assert {0, 1} == set(seen)
    assert read_lessons(path) == found
    with path.open("a") as file:
        file.write('{"lesson": {"atte')  # a run that was cut
    again = run_lessons(lessons[-2:], path, lambda *_: pytest.fail("it is known"))
    assert again == found
    line = json.loads(path.read_text().splitlines()[0])
    assert line["lesson"]["attention"] == "none"
    assert all(isinstance(point, Point) for points in found.values() for point in points)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attention": "sofmax"}, "did you mean 'softmax'"),
        ({"task": "lokup"}, "did you mean 'lookup'"),
        ({"seconds": 0.0}, "seconds is 0.0; expected a positive number"),
        ({"eta": -1.0}, "eta is -1.0; expected a number of at least 0"),
        ({"start": "symetric"}, "start is 'symetric'.*expected one of 'own', 'symmetric'"),
        ({"length": 5}, "length is 5; expected at least 12"),
        ({"task_options": (("pairs", 99),)}, "pairs is 99; expected 1 to 32"),
        ({"task_options": (("queries", 0),)}, "queries is 0; expected at least 1"),
    ],
)
def test_bad_lessons(options, message):
    with pytest.raises(ValueError, match=message):
        Lesson(**{"attention": "none", **options})
