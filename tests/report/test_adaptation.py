from primal_attention.bench.lengths import Pace
from primal_attention.bench.memory import Peak
from primal_attention.report.adaptation import write_adaptation
from primal_attention.train.adapt import Adaptation, Evaluation


def test_the_page_shows_before_and_after(tmp_path):
    history = [
        Evaluation(0, 2.0, 1.0, 0.5, (0.8, 1.2), 0.41),
        Evaluation(50, 0.2, 0.1, 0.9, (0.08, 0.12), 0.91),
        Evaluation(100, 0.3, 0.2, 0.8, (0.09, 0.13), 0.81),
    ]
    found = Adaptation(("a.0.x", "a.1.x"), ("a.0", "a.1"), 0.95, history, 50, "all steps were done")
    assert Adaptation.from_json(found.to_json()) == found
    path = write_adaptation(
        found, tmp_path / "page.html", command="primal adapt <x>", title="T & U"
    )
    text = path.read_text()
    for piece in ("50.0\N{NO-BREAK SPACE}%", "90.0\N{NO-BREAK SPACE}%", "0.4100", "0.9100",
                  "Quality of the original: 0.9500", "step 50", "primal adapt &lt;x&gt;",
                  "T &amp; U", "0.1200"):  # fmt: skip
        assert piece in text, piece
    assert "Time and memory" not in text


def test_the_page_shows_time_and_memory_in_multiples(tmp_path):
    found = Adaptation(("a.0",), ("a.0",), None, [Evaluation(0, 2.0, 1.0, 0.5, (0.8,))])
    paces = [Pace(512, Peak(20.0, 0.2), Peak(25.0, 0.1)), Pace(2048, Peak(44, 1.5), Peak(0, 0.3))]
    path = write_adaptation(found, tmp_path / "page.html", command="c", title="T", paces=paces)
    rows = path.read_text().split('id="paces"')[1]
    for piece in ("0.200", "0.100", "2.0x", "0.8x", "2,048", "5.0x"):
        assert piece in rows, piece
    assert rows.count("0.8x") == 1  # nothing was needed: no multiple
