"""Sections open with a sentence that the figures bear out."""

from types import SimpleNamespace

import numpy as np

from primal_attention.report.sections import conclusions
from primal_attention.report.sections.base import Section
from primal_attention.tasks.classification.result import ACCURACY
from primal_attention.train.calibrate import conclusion


def entry(name="one", key=0, values=None, confusion=None, mean=90.0, label="test accuracy"):
    run = SimpleNamespace(
        values=values or {1: 50.0, 2: mean},
        chosen=2,
        confusion=None if confusion is None else np.array(confusion),
        classes=("a", "b"),
    )
    config = SimpleNamespace(task="uea/Set")
    return SimpleNamespace(
        name=name, key=key, runs=[run], mean=mean, label=label, config=config, measure=ACCURACY
    )


def test_the_best_of_a_task_is_named_with_its_label():
    said = conclusions.best_of([entry(), entry("two", mean=95.0)])
    assert "two has 95.0" in said
    assert "the highest of 2 (test accuracy, one seed)" in said


def test_a_curve_that_still_rises_says_so():
    rising = {epoch: float(epoch) for epoch in range(1, 21)}
    flat = dict.fromkeys(range(1, 21), 90.0)
    assert "still rising" in conclusions.curve(entry(values=rising))
    assert "still rising" not in conclusions.curve(entry(values=flat))
    assert "no curve to read" in conclusions.curve(entry(values={1: 3.0}))


def test_the_most_frequent_mistake():
    said = conclusions.mistakes(entry(confusion=[[5, 3], [1, 6]]))
    assert "4 errors, most often a taken for b (3)" in said
    assert "no error on these 9 cases" in conclusions.mistakes(entry(confusion=[[5, 0], [0, 4]]))


def test_layers_near_and_far_from_a_solution():
    def found(scale):
        layer = {"lambda_by_head": [[scale, scale]], "inverse_sigma_by_head": [[1.0, 1.0]]}
        return {0: {"diagnostics": {"layers": [layer]}}}

    far = conclusions.solutions([entry()], found(1e-4))
    assert "one is far from a KSVD solution: Λσ is 0.0001, not 1." in far
    assert "near a KSVD solution" in conclusions.solutions([entry()], found(1.2))


def test_ranks_and_benchmarks():
    layer = {
        "effective_rank_by_head": [2.0, 4.0],
        "explained_variance": {"mean": [0.1] * 8},
    }
    said = conclusions.ranks([entry()], {0: {"spectrum": {"layers": [layer]}}})
    assert "one 3.0 of 8" in said
    times = {"softmax": {512: 1.0, 1024: 4.0}, "primal": {512: 0.5, 1024: 1.0}, "floor": {512: 0.1}}
    results = SimpleNamespace(candidates=list(times), series=lambda c, q: times[c])
    said = conclusions.fastest(SimpleNamespace(results=results))
    assert said == "At 1,024 positions primal takes 25.0\N{NO-BREAK SPACE}% of the time of softmax."


def test_the_sentence_stands_before_the_body():
    html = Section("a", "Title", "<p>body</p>", "What <it> says.").html()
    assert html.index("What &lt;it&gt; says.") < html.index("body")
    assert 'class="lead"' not in Section("a", "Title", "").html()


def result_entry(result, **numbers):
    one = entry()
    one.runs[0].result = result
    one.mean_of = lambda key: numbers.get(key)
    return one


def test_events_stand_beside_counting():
    baselines = {
        "majority": {"accuracy": 0.3},
        "trigram": {"accuracy": 0.45},
        "log-normal": {"gap_loss": 2.5},
    }
    known = result_entry({"timeline": {}, "baselines": baselines}, accuracy=0.465, gap_loss=2.75)
    said = conclusions.foreseen(known)
    assert "46.5\N{NO-BREAK SPACE}% of the next types, 1.5 points above trigram" in said
    assert "gaps cost 0.25 nats more than by one log-normal" in said
    assert conclusions.foreseen(result_entry({})) == ""


def test_time_and_what_it_gives_up():
    quick, best = entry("quick", mean=80.0), entry("best", mean=90.0)
    for one, seconds in ((quick, 10.0), (best, 30.0)):
        one.config.epochs = 5
        one.mean_of = lambda key, seconds=seconds: seconds
    said = conclusions.quickest([quick, best])
    assert "quick is the quickest, 2 s an epoch, 10.0 points below best" in said
    assert "takes 3.0 times that" in said
    assert "No two configurations" in conclusions.quickest([quick])


def test_J_comes_down():
    one = entry()
    one.runs[0].ksvd_by_step = {1: 4.0, 9: 0.25}
    assert "J fell from 2 to 0.5" in conclusions.descent(one)
    one.runs[0].ksvd_by_step = one.runs[0].ksvd_loss = {}
    assert conclusions.descent(one) == ""


def test_how_far_and_what_is_better_for_sure():
    figures = {
        "accuracy": {"value": 0.7, "low": 0.65, "high": 0.75},
        "ece": {"value": 0.2, "low": 0.1, "high": 0.3},
        "nll": {"value": 1.0, "low": 0.9, "high": 1.1},
    }
    bins = [{"count": 10, "confidence": 0.9, "accuracy": 0.7}]
    found = {
        "methods": {name: {"figures": figures, "bins": bins} for name in ("as it is", "t")},
        "differences": {"t": {"nll": {"value": -0.1, "sure": False}}},
    }
    said = conclusion(found)
    assert "90.0 % stated on average, 70.0 % right: overconfident by 20.0 points" in said
    assert "no other method has a lower NLL for sure" in said
    found["differences"]["t"]["nll"]["sure"] = True
    assert "; t has the lowest NLL" in conclusion(found)
    bins[0]["confidence"] = 0.72
    assert "no sure difference" in conclusion(found)
