"""The paper's figures: exact, and consistent where the paper is."""

import pytest

from primal_attention.reproduce.paper_tables import NAMES, Figure, table

# averages that the paper prints and that its own figures contradict
MISPRINTS = {("table1", "Long."): 72.28, ("table1", "Per."): 71.68}


@pytest.mark.parametrize("name", NAMES)
def test_every_cell_has_a_figure(name):
    found = table(name)
    assert set(found.figures) == {(r, c) for r in found.rows for c in found.columns}
    for note in found.notes:  # which name what exists
        assert note.general or any(note.applies(r, c) for r in found.rows for c in found.columns), (
            note
        )


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("table1", (10, 11)), ("table2", (5, 9)), ("table3", (7, 10)), ("table4", (9, 7)),
        ("table5", (2, 2)), ("table6", (30, 4)), ("table7", (3, 9)), ("table8", (2, 10)),
        ("table9", (2, 5)),
    ],
)  # fmt: skip
def test_shapes(name, shape):
    assert (len(table(name).rows), len(table(name).columns)) == shape


@pytest.mark.parametrize("name", ["table1", "table2", "table4", "table8", "table9"])
def test_printed_averages_are_those_of_the_figures(name):
    found = table(name)
    assert len(found.averages) == len(found.columns if found.average_over == "rows" else found.rows)
    for end, printed in found.averages.items():
        across = found.average_over == "columns"
        cells = [f for (r, c), f in found.figures.items() if (r if across else c) == end]
        mean = sum(figure.value for figure in cells) / len(cells)
        if (name, end) in MISPRINTS:
            assert mean == pytest.approx(MISPRINTS[name, end])
            assert abs(mean - printed.value) > printed.rounding
            assert any(f"{MISPRINTS[name, end]}" in note.text for note in found.notes)
        else:
            assert abs(mean - printed.value) <= printed.rounding + 1e-9
        if name == "table4":
            spread = sum(figure.deviation for figure in cells) / len(cells)
            wrong = 6.68 if end == "Cos." else printed.deviation
            assert spread == pytest.approx(wrong, abs=0.05)


def test_factors_of_table_3():
    """As printed, from unrounded times: within the rounding of both."""
    found = table("table3")
    for (_, column), figure in found.figures.items():
        base = found.figure("Trans.", column)
        low = (base.value - base.rounding) / (figure.value + figure.rounding)
        high = (base.value + base.rounding) / (figure.value - figure.rounding)
        assert low - 0.07 <= figure.factor <= high + 0.07


def test_tables_agree_with_each_other():
    one, two, six, eight, nine = map(table, ("table1", "table2", "table6", "table8", "table9"))
    for name in one.rows:
        best = max(figure.value for (row, _), figure in six.figures.items() if name in row)
        assert best == one.figure(name, "Primal.").value
        assert eight.figure("Yes", name).value == one.figure(name, "Primal.+Trans.").value
    lengths = {row.split()[0]: row for row in two.rows}
    for column in nine.columns:
        row = lengths[nine.read_as.get(column, column)]
        assert nine.figure("Yes", column).value == two.figure(row, "Primal.+Trans.").value


def test_table_6_has_the_tuned_settings_of_the_recipes():
    from primal_attention.tasks.uea.recipes import TUNED

    for name, tuned in TUNED.items():
        row = {"Handwriting": "HandWriting", "Heartbeat": "HeartBeat"}.get(name, name)
        rank, eta = tuned.primalformer
        figure = table("table6").figure(f"{row} s={rank}", f"eta={eta:g}")
        assert figure.value == table("table1").figure(row, "Primal.").value


def test_single_figures():
    assert table("table1").figure("JapaneseVowels", "Primal.").value == 98.4
    assert table("table2").figure("Text (4K)", "Lin.").value == 55.9
    assert table("table3").figure("Primal.", "Memory Text") == Figure(
        "1.37 (15.5×)", 1.37, 2, None, 15.5
    )
    assert table("table4").figure("Medium-Expert Walker", "Linear.").deviation == 27.3
    assert table("table5").figure("Primal.+DeiT-Small/16", "Top-1").value == 75.7
    assert table("table7").figure("Walker", "Medium-Replay s=96").value == 80.5
    averages = {one.name: one.average for one in table("table1").references}
    assert averages == {
        "HIVE-COTE 2": 80.1, "DrCIF": 77.1, "MultiRocket-Hydra": 76.7, "ROCKET": 74.0,
        "InceptionTime": 73.3,
    }  # fmt: skip


def test_rounding():
    assert Figure.parse("100").rounding == 0.5
    assert Figure.parse("83.8±3.3").rounding == pytest.approx(0.05)
    with pytest.raises(ValueError, match="the figure is 'x'; expected one like"):
        Figure.parse("x")


def test_parts():
    assert len(table("table1").select(None)) == 110
    assert table("table1").select("japanesevowels")[0] == ("JapaneseVowels", "Trans.")
    assert len(table("table1").select("Primal.")) == 10
    assert len(table("table6").select("JapaneseVowels")) == 12
    assert len(table("table2").select("ListOps")) == 9
    with pytest.raises(ValueError, match=r"part of table1: 'JapanVowels' \(did you mean 'Japanes"):
        table("table1").select("JapanVowels")
    with pytest.raises(ValueError, match=r"unknown table 'tabel1' \(did you mean 'table1'\?\)"):
        table("tabel1")
    with pytest.raises(ValueError, match="unknown column of table1"):
        table("table1").figure("PEMS-SF", "x")
    with pytest.raises(ValueError, match="unknown row of table1"):
        table("table1").figure("x", "Primal.")
