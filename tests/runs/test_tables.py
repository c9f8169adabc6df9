"""Lines of cells as text."""

from primal_attention.runs.tables import to_csv, to_markdown


def test_csv():
    assert to_csv(["a", "b"], [[1, None], ["x, y", 2.5]]) == 'a,b\n1,\n"x, y",2.5\n'


def test_markdown():
    assert to_markdown(["a", "b"], [["x", "1"]]) == "| a | b |\n| --- | --- |\n| x | 1 |"
    assert to_markdown(["", "N"], [], numbers=True) == "|  | N |\n| --- | ---: |"
