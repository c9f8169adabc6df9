"""Sections open with a sentence that the figures bear out."""

from types import SimpleNamespace

import numpy as np

from primal_attention.report.sections import conclusions
from primal_attention.report.sections.base import Section
from primal_attention.tasks.classification.result import ACCURACY


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
