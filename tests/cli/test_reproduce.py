"""`primal reproduce` from the command line."""

import json

import pytest


@pytest.fixture(autouse=True)
def registered():
    from primal_attention.cli.app import app
    from primal_attention.cli.reproduce import EPILOG, reproduce

    if reproduce not in [command.callback for command in app.registered_commands]:
        app.command(epilog=EPILOG)(reproduce)


def test_a_quick_cell_with_its_files(primal, tmp_path):
    done = primal("reproduce", "table8/JapaneseVowels", "--quick", "--out", tmp_path / "out")
    assert done.code == 0, done.err
    assert "quick settings" in done.out
    assert "2 no verdict" in done.out
    assert "(2 ended, 2 in all)" in done.err
    made = tmp_path / "out" / "table8-JapaneseVowels-quick.md"
    text = made.read_text()
    assert "primal reproduce table8/JapaneseVowels --protocol paper --seeds 0 --quick" in text
    assert made.with_suffix(".csv").exists()
    assert made.with_suffix(".tex").exists()
    again = primal(
        "reproduce", "table8/JapaneseVowels", "--quick", "--json", "--out", tmp_path / "out"
    )
    cells = json.loads(again.out)["cells"]
    assert [cell["row"] for cell in cells] == ["No", "Yes"]
    assert all(cell["ours"]["seeds"] == 1 for cell in cells)
    assert again.err == ""  # nothing was run


def test_a_table_without_data_says_so(primal):
    done = primal("reproduce", "table4/Hopper")
    assert done.code == 2  # rows begin with the level
    done = primal("reproduce", "table5")
    assert done.code == 0
    assert "the data is not here" in done.out
    assert "4 not run" in done.out
    assert "82.94" in done.out


def test_published_runs_are_shown_and_nothing_is_run(primal, tmp_path):
    done = primal("reproduce", "table1", "--published", "--json", "--out", tmp_path)
    assert done.code == 0, done.err
    cells = {(cell["row"], cell["column"]): cell for cell in json.loads(done.out)["cells"]}
    assert cells["JapaneseVowels", "Primal.+Trans."]["ours"]["seeds"] == 3
    assert cells["PEMS-SF", "Primal."]["why"] == "not among the published runs"
    assert {path.name for path in tmp_path.iterdir()} == {
        f"table1-published.{kind}" for kind in ("csv", "md", "tex")
    }


def test_wrong_usage(primal):
    for words, message in (
        (["table11"], "unknown table 'table11'"),
        (["table1", "--budget", "soon"], "the time is 'soon'; expected one like 90s"),
        (["table1", "--seeds", "3-1"], "--seeds is '3-1'"),
        (["table1", "--protocol", "papers"], "protocol is 'papers' (did you mean 'paper'?)"),
        (["table4", "--protocol", "holdout"], "table4 has no epochs to choose"),
        (["table1/JapanVowels"], "did you mean 'JapaneseVowels'?"),
        (["table1", "--published", "--quick"], "--quick is given with --published"),
        (["table4", "--published"], "table4 has no published runs; expected one of table1,"),
    ):
        done = primal("reproduce", *words)
        assert done.code == 2
        assert message in done.err
