"""A search: points are proposed, remembered and continued."""

import json
import sys

import pytest

from primal_attention.train import RunError
from primal_attention.train.sweep import Outcome, parse_space
from primal_attention.train.sweep.search import FILE, search

SPACE = parse_space(["rank=2:40", "eta=0,0.1", "lr=1e-4:1e-1:log"])


@pytest.fixture
def engine(store):
    """Does no run: an accuracy that is best at rank 30. `engine.runs` are the runs it was given,
    `engine.places` for how many it asks."""

    class Engine:
        def __init__(self):
            self.runs, self.places = [], 1

        def __call__(self, configs, more):
            self.do(configs)
            while new := more(self.places):
                self.do(new)

        def do(self, configs):
            known = store.outcomes()
            for config in configs:
                if config.fingerprint() in known:
                    continue
                self.runs.append(config)
                worth = 1 - abs(config.rank - 30) / 40
                store.add(
                    Outcome(
                        config.fingerprint(),
                        "finished",
                        {},
                        accuracy=worth,
                        selected=worth,
                        curve=(worth,),
                    )
                )

    return Engine()


def test_missing_optuna_is_one_sentence(store, config, engine, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(RunError, match=r"needs optuna; install 'primal-attention\[search\]'"):
        search(config(), SPACE, [0], store, engine, count=2)


def test_a_search_finds_and_goes_on(store, config, engine):
    pytest.importorskip("optuna")
    engine.places = 6
    first = search(config(), SPACE, [0, 1], store, engine, count=6)
    assert len(first) == 12
    assert len(engine.runs) == 12
    assert {c.seed for c in first} == {0, 1}
    assert all(2 <= c.rank <= 40 and 1e-4 <= c.lr <= 1e-1 for c in first)
    points = json.loads((store.root / "search.json").read_text())["points"]
    assert len(points) == 6
    assert len({p["rank"] for p in points}) > 1
    again = search(config(), SPACE, [0, 1], store, engine, count=6)
    assert again == first
    assert len(engine.runs) == 12
    search(config(), SPACE, [0, 1], store, engine, count=30)
    assert len(engine.runs) == 60
    late = [c.rank for c in engine.runs[-20:]]
    assert sum(abs(rank - 30) <= 8 for rank in late) > 10  # it has learned


def test_a_small_space_ends_the_search(store, config, engine):
    pytest.importorskip("optuna")
    engine.places = 2
    runs = search(config(), parse_space(["rank=2,3"]), [0], store, engine, count=9)
    assert sorted(c.rank for c in runs) == [2, 3]  # each once


def test_another_space_is_refused(store, config, engine):
    pytest.importorskip("optuna")
    search(config(), SPACE, [0], store, engine, count=1)
    with pytest.raises(RunError, match="a search in another space"):
        search(config(), parse_space(["rank=2:50"]), [0], store, engine, count=1)
    with pytest.raises(ValueError, match="expected at least 1"):
        search(config(), SPACE, [0], store, engine, count=0)


@pytest.mark.parametrize(
    ("text", "expected"), [("[]", "holds a list; expected a JSON object"), (None, "no list of poi")]
)
def test_a_damaged_search_is_named(text, expected, store, config, engine):
    pytest.importorskip("optuna")
    search(config(), SPACE, [0], store, engine, count=1)
    path = store.root / FILE
    path.write_text(text or json.dumps(json.loads(path.read_text()) | {"points": None}))
    with pytest.raises(RunError, match=f"{FILE} .*{expected}"):
        search(config(), SPACE, [0], store, engine, count=2)


def test_open_points_are_kept_away_from(store, config, monkeypatch):
    """Points are proposed while others are at work, and the sampler knows of them."""
    optuna = pytest.importorskip("optuna")
    studies = []
    real = optuna.create_study

    def create(**options):
        studies.append(real(**options))
        return studies[-1]

    monkeypatch.setattr(optuna, "create_study", create)
    asked = []

    def engine(configs, more):
        """Four places, of which none is ever free again; two points of seven are for later."""
        asked.extend(more(4))
        failed = Outcome(asked[0].fingerprint(), "failed", {}, reason="no")
        done = Outcome(asked[1].fingerprint(), "finished", {}, accuracy=0.5, selected=0.5)
        store.add(failed)
        store.add(done)
        asked.extend(more(1))

    search(config(), SPACE, [0], store, engine, count=7)
    assert len(asked) == 5
    assert len({run.fingerprint() for run in asked}) == 5
    states = [trial.state.name for trial in studies[1].get_trials()]
    # one is done, two are at work, the failed one tells nothing; and the one that is asked for
    assert states == ["COMPLETE", "RUNNING", "RUNNING", "RUNNING"]
