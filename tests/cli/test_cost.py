"""`primal cost`, run as a command of its own."""

import json
import sys

import pytest
import typer
from typer.testing import CliRunner

from primal_attention.cli.cost import cost, parse_count, parse_lengths, parse_size, short
from primal_attention.cli.settings import UsageError


@pytest.fixture
def run():
    app = typer.Typer()
    app.command()(cost)
    return lambda *words: CliRunner().invoke(app, list(words))


def test_the_table_has_all_attentions_and_says_where_they_cross(run):
    done = run("--d", "512", "--heads", "8", "--rank", "32", "--length", "1k:10M")
    assert done.exit_code == 0, done.output
    for word in ("primal, tied", "softmax, fused", "nystrom", "N = 10M", "from N =", "fits 16G"):
        assert word in done.output


def test_json_is_the_model(run):
    from primal_attention.analysis import crossing, largest_length, layer_cost

    done = run("--length", "1k,4k", "--attention", "primal", "--memory", "2G", "--json")
    found = json.loads(done.output)
    sizes = {"width": 512, "heads": 8, "rank": 32}
    first = found["attentions"][0]
    assert [row["attention"] for row in found["attentions"]] == [
        "primal, data", "primal, free", "primal, tied",
    ]  # fmt: skip
    assert first["costs"][1] == layer_cost("primal", 4000, **sizes).to_dict()
    assert first["cheaper_from"] == crossing("primal", **sizes)
    assert first["fits"]["training"] == largest_length("primal", 2 << 30, training=True, **sizes)


SMALL = ("--measure", "--d", "8", "--heads", "2", "--rank", "2", "--length", "32,16")


@pytest.fixture
def quick(monkeypatch):
    """Every step is called once and takes a second."""
    from primal_attention.cli import cost_times

    def once(step):
        step()
        return 1.0

    monkeypatch.setattr(cost_times, "PRODUCT", 8)
    monkeypatch.setattr(cost_times, "COPIED", 8)
    monkeypatch.setattr(cost_times, "LONGEST_CALL", 1e9)
    monkeypatch.setattr(cost_times, "processor_seconds", once)


def test_measured_against_predicted(run, quick):
    from primal_attention.analysis import Machine, layer_cost

    done = run(*SMALL, "--attention", "primal,softmax", "--json")
    assert done.exit_code == 0, done.output
    times = json.loads(done.output)["times"]
    machine = Machine(**times["machine"])
    assert times["machine"] == {"flops": 2 * 8**3, "bandwidth": 2 * 8 * 4}
    assert [row["attention"] for row in times["attentions"]] == [
        "softmax, fused", "primal, data", "primal, free", "primal, tied", "softmax, matrix formed",
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
    from primal_attention.cli import cost_times

    monkeypatch.setattr(cost_times, "LONGEST_CALL", 60.0)
    done = run(*SMALL, "--attention", "linear")
    assert done.exit_code == 0, done.output
    for word in ("One thread: 1.02kFLOP/s", "faster than softmax from", "not up to 32", "not run"):
        assert word in done.output


def test_processor_time_is_the_least_of_one_call(monkeypatch):
    from primal_attention.cli import cost_times

    now, costs = 0.0, iter([9.0, 0.5, 0.25, 0.5])  # the first is to warm up

    def step():
        nonlocal now
        now += next(costs)

    monkeypatch.setattr(cost_times.time, "process_time", lambda: now)
    assert cost_times.processor_seconds(step) == 0.25
    costs, now = iter([0.0078125] * 99), 0.0
    assert cost_times.processor_seconds(step) == 0.0078125
    assert len(list(costs)) == 99 - 1 - 3 * 3  # three calls fill a turn


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--attention", "primel"), "unknown attention 'primel' (did you mean 'primal'?)"),
        (("--length", "ten"), "'ten' is no length"),
        (("--length", "4k:1k"), "the shorter one first"),
        (("--memory", "much"), "'much' is no memory"),
        (("--heads", "7"), "heads is 7; expected a divisor of width = 512"),
    ],
)
def test_wrong_usage_is_one_sentence(run, words, message):
    wrong = run(*words).exception
    assert isinstance(wrong, UsageError)
    assert wrong.exit_code == 2
    assert message in str(wrong)


def test_numbers():
    assert parse_lengths("1k:10M") == [1000, 10_000, 100_000, 1_000_000, 10_000_000]
    assert parse_lengths("2k:5k") == [2000, 5000]
    assert parse_lengths("128, 4k") == [128, 4000]
    assert parse_count("1.5k") == 1500
    assert parse_size("1.5G") == 3 << 29
    assert parse_size("512MB") == 512 << 20
    assert [short(n) for n in (999, 1000, 123_456_789)] == ["999", "1k", "123M"]
    assert short(1023 * 2**20, 1024) == "1023M"


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

    done = run("--length", "1k")
    assert done.exit_code == 0, done.output
    assert "Without a cost formula: plain." in done.output
    wrong = run("--attention", "plain").exception
    assert isinstance(wrong, UsageError)
    assert "attention 'plain' has no cost formula; expected one of" in str(wrong)
