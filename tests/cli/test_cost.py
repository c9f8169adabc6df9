"""`primal cost`, run as a command of its own."""

import json
import sys

import pytest
import typer
from typer.testing import CliRunner

from primal_attention.cli.cost import cost
from primal_attention.cli.settings import UsageError


@pytest.fixture
def run():
    app = typer.Typer()
    app.command()(cost)
    return lambda *words: CliRunner().invoke(app, list(words))


def test_the_table_has_all_attentions_and_says_where_they_cross(run):
    done = run("--width", "512", "--heads", "8", "--rank", "32", "--lengths", "1k:10M")
    assert done.exit_code == 0, done.output
    for word in (
        "primal:tied",
        "softmax:materialised",
        "nystrom",
        "N = 10M",
        "from N =",
        "fits 16G",
    ):
        assert word in done.output


def test_a_list_among_the_options(run):
    for words in (["lka:grid=[8,8]"], ["lka", "--option", "lka.grid=[8,8]"]):
        done = run("--lengths", "64", "--width", "16", "--heads", "2", "--attention", *words)
        assert done.exit_code == 0, done.output
        assert "N = 64" in done.output


def test_json_is_the_model(run):
    from primal_attention.analysis import crossing, largest_length, layer_cost

    names = "primal:data,primal:free,performer"
    words = ("--attention", names, "--option", "performer.features=64", "--memory", "2G", "--json")
    done = run("--lengths", "1k,4k", *words)
    found = json.loads(done.output)
    sizes = {"width": 512, "heads": 8, "rank": 32}
    first = found["attentions"][0]
    assert [row["attention"] for row in found["attentions"]] == [
        "primal:data", "primal:free", "performer:features=64",
    ]  # fmt: skip
    options = {"options": {"features": 64}}
    assert found["attentions"][2]["costs"][0] == (
        layer_cost("performer", 1000, **options, **sizes).to_dict()
    )
    data = sizes | {"options": {"weights": "data"}}
    assert first["costs"][1] == layer_cost("primal", 4000, **data).to_dict()
    assert first["cheaper_from"] == crossing("primal", **data)
    assert first["fits"]["training"] == largest_length("primal", 2 << 30, training=True, **data)


SMALL = ("--measure", "--width", "8", "--heads", "2", "--rank", "2", "--lengths", "16,32")


@pytest.fixture
def quick(monkeypatch):
    """Every step is called once and takes a second."""
    from primal_attention.bench import costs

    def once(step):
        step()
        return 1.0

    monkeypatch.setattr(costs, "PRODUCT", 8)
    monkeypatch.setattr(costs, "COPIED", 8)
    monkeypatch.setattr(costs, "LONGEST_CALL", 1e9)
    monkeypatch.setattr(costs, "processor_seconds", once)


def test_measured_against_predicted(run, quick):
    from primal_attention.analysis import Machine, layer_cost

    done = run(*SMALL, "--attention", "primal,softmax:materialised", "--json")
    assert done.exit_code == 0, done.output
    times = json.loads(done.output)["times"]
    machine = Machine(**times["machine"])
    assert times["machine"] == {"flops": 2 * 8**3, "bandwidth": 2 * 8 * 4}
    assert [row["attention"] for row in times["attentions"]] == [
        "softmax", "primal", "softmax:materialised",
    ]  # fmt: skip
    cells = times["attentions"][1]["cells"]
    assert [cell["length"] for cell in cells] == times["lengths"] == [16, 32]
    cost = layer_cost("primal", 16, width=8, heads=2, rank=2)
    assert cells[0]["predicted"] == pytest.approx(machine.seconds(cost))
    assert cells[0]["measured"] == 1.0
    assert times["attentions"][1]["fit"].keys() == {"overhead", "factor"}
    assert times["attentions"][1]["faster_from"]["measured"] is None
    assert "faster_from" not in times["attentions"][0]


def test_the_table_of_times(run, quick, monkeypatch):
    from primal_attention.bench import costs

    monkeypatch.setattr(costs, "LONGEST_CALL", 60.0)
    done = run(*SMALL, "--attention", "linear")
    assert done.exit_code == 0, done.output
    for word in ("One thread: 1.02kFLOP/s", "faster than softmax from", "not up to 32", "not run"):
        assert word in done.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--attention", "primel"), "unknown attention 'primel' (did you mean 'primal'?)"),
        (("--lengths", "ten"), "lengths is 'ten'; expected a range"),
        (("--lengths", "4k:1k"), "lengths is '4k:1k'"),
        (("--option", "performer.featurs=8"), "did you mean 'features'?"),
        (("--attention", "primal", "--option", "performer.features=8"), "expected one of 'primal'"),
        (("--memory", "much"), "'much' is no memory"),
        (("--heads", "7"), "heads is 7; expected a divisor of width = 512"),
    ],
)
def test_wrong_usage_is_one_sentence(run, words, message):
    wrong = run(*words).exception
    assert isinstance(wrong, UsageError)
    assert wrong.exit_code == 2
    assert message in str(wrong)


def test_help_needs_no_torch():
    import subprocess

    code = (
        "import sys, typer; from primal_attention.cli import cost, spectrum; app = typer.Typer(); "
        "app.command()(cost.cost); app.command()(spectrum.spectrum)\n"
        "for name in ('cost', 'spectrum'): app([name, '--help'], standalone_mode=False)\n"
        "print(sorted({'torch', 'numpy', 'matplotlib', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("[]\n")


def test_an_attention_without_a_formula_is_named(run, monkeypatch):
    from torch import nn

    from primal_attention.attention import register, registry

    monkeypatch.setattr(registry, "_registry", dict(registry._registry))

    @register("plain", paper="nobody, 2026", cost="O(N)")
    class Plain(nn.Module):
        def __init__(self, embed_dim, num_heads):
            super().__init__()

    done = run("--lengths", "1k")
    assert done.exit_code == 0, done.output
    assert "Without a cost formula: plain." in done.output
    wrong = run("--attention", "plain").exception
    assert isinstance(wrong, UsageError)
    assert "attention 'plain' has no cost formula; expected one of" in str(wrong)


def test_depth_and_width_for_a_number_of_parameters(run):
    from primal_attention.analysis import shape_for

    words = ("--parameters", "10M", "--attention", "softmax,primal", "--rank", "16")
    done = run(*words)
    assert done.exit_code == 0, done.output
    for word in ("balanced", "the law has 10.7 layers of width 279", "Warning: rank 16 in 8 heads"):
        assert word in done.output
    found = json.loads(run(*words, "--classifier", "--json").output)
    expected = [
        shape_for(10**7, attention=name, rank=16, length=1000, classifier=True).to_dict()
        for name in ("softmax", "primal")
    ]
    assert found == json.loads(json.dumps(expected))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--parameters", "many"], "'many' is no number; expected such as 4096, 10M"),
        (["--parameters", "1M", "--lengths", "1k,2k"], "expected one length with --parameters"),
        (["--parameters", "1M", "--attention", "floor"], "--attention has 'floor'; expected names"),
        (["--parameters", "1M", "--measure"], "--measure is given with --parameters"),
        (["--classifier"], "--classifier is given without --parameters"),
    ],
    ids=str,
)
def test_what_a_shape_cannot_be_asked(run, words, message):
    done = run(*words)
    assert isinstance(done.exception, UsageError)
    assert message in str(done.exception)
