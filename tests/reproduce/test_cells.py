"""Which runs fill a cell, in which order, and why some cells have none."""

import pytest

from primal_attention.reproduce.cells import cells_of
from primal_attention.reproduce.order import ordered, work
from primal_attention.reproduce.paper_tables import NAMES


@pytest.fixture(autouse=True)
def embedded(monkeypatch):
    """Only the sets that come with the package."""
    monkeypatch.delenv("PRIMAL_ATTENTION_DATA", raising=False)


@pytest.fixture
def all_data(monkeypatch):
    """As if all data were at hand; nothing of it is read."""
    from primal_attention.tasks import DataStatus, available_tasks, get_task

    for kind in {type(get_task(name)) for name in available_tasks()}:
        monkeypatch.setattr(kind, "status", lambda self, _=None: DataStatus("", "", {}, (), ""))


def find(cells, row, column):
    return next(c for c in cells if (c.row, c.column) == (row, column))


def test_table_1(all_data):
    cells = cells_of("table1")
    assert len(cells) == 110
    assert all(cell.config is not None for cell in cells)
    primal = find(cells, "HandWriting", "Primal.").config
    assert (primal.task, primal.attention) == ("uea/Handwriting", ("primal", "primal"))
    assert (primal.rank, primal.eta, primal.width, primal.protocol) == (30, 0.2, 512, "paper")
    plus = find(cells, "HandWriting", "Primal.+Trans.").config
    assert (plus.attention, plus.rank, plus.eta) == (("softmax", "primal"), 20, 0.5)
    assert find(cells, "PEMS-SF", "Flow.").config.attention == ("flow", "flow")
    assert find(cells, "PEMS-SF", "Trans.").config.epochs == 400


def test_table_2(all_data):
    cells = cells_of("table2", protocol="holdout")
    reformer = find(cells, "ListOps (2K)", "Re.").config
    assert (reformer.task, reformer.options) == ("lra/listops", {"reformer": {"hashes": 2}})
    assert reformer.protocol == "holdout"
    primal = find(cells, "Text (4K)", "Primal.").config
    assert (primal.rank, primal.eta, primal.options, primal.width) == (20, 0.05, {}, 64)


def test_ablations(all_data):
    six = find(cells_of("table6", "JapaneseVowels"), "JapaneseVowels s=20", "eta=0.1").config
    assert (six.rank, six.eta, six.attention) == (20, 0.1, ("primal", "primal"))
    eight = cells_of("table8")
    assert find(eight, "No", "HeartBeat").config.weights == "free"
    yes = find(eight, "Yes", "HeartBeat").config
    one = find(cells_of("table1"), "HeartBeat", "Primal.+Trans.").config
    assert yes.fingerprint() == one.fingerprint()  # one run for both tables
    nine = find(cells_of("table9"), "No", "Text").config  # which is Image
    assert (nine.task, nine.weights) == ("lra/image", "free")


@pytest.mark.parametrize("name", [name for name in NAMES if name != "table3"])
def test_every_cell_has_a_recipe_or_a_reason(name):
    for cell in cells_of(name):
        assert (cell.config is None) == bool(cell.why)


def test_reasons():
    cells = cells_of("table1")
    assert find(cells, "JapaneseVowels", "Primal.").why == ""
    why = find(cells, "HeartBeat", "Primal.").why
    assert why == "the data is not here; `primal data` says how to get it"
    why = find(cells_of("table4"), "Medium-Expert Walker", "DT").why
    assert why.startswith("needs D4RL's episodes: expected ")
    assert "walker2d_medium_expert-v2.hdf5" in why
    assert "hopper_medium-v2" in find(cells_of("table7"), "Hopper", "Medium s=32").why
    assert "the data is not here" in cells_of("table5")[0].why


def test_decision_transformers(tmp_path):
    (tmp_path / "d4rl").mkdir()
    for stem in ("hopper_medium", "walker2d_medium_expert"):
        (tmp_path / "d4rl" / f"{stem}-v2.hdf5").touch()  # nothing of it is read
    cells = cells_of("table4", data_dir=tmp_path)
    assert sum(cell.config is not None for cell in cells) == 14
    plain = find(cells, "Medium Hopper", "DT").config
    assert (plain.task, plain.attention) == ("rl/hopper-medium", ("softmax",) * 3)
    primal = find(cells, "Medium-Expert Walker", "Primal.+DT").config
    assert (primal.task, primal.rank, primal.eta) == ("rl/walker2d-medium-expert", 32, 0.05)
    assert primal.attention == ("softmax", "softmax", "primal")
    seven = find(cells_of("table7", data_dir=tmp_path), "Hopper", "Medium s=96").config
    assert (seven.rank, seven.weights, seven.width) == (96, "free", 256)
    quick = find(cells_of("table4", quick=True, data_dir=tmp_path), "Medium Hopper", "DT").config
    assert work(quick) < work(plain) / 1000
    runs = ordered(cells, [0, 1])
    assert len(runs) == 28
    assert {run.seed for run in runs[:4]} == {0}
    assert all(a in ("softmax", "primal") for a in runs[0].attention)


def test_images_of_imagenet_100(tmp_path):
    for split in ("train", "val"):
        for number in range(100):
            (tmp_path / split / f"class{number}").mkdir(parents=True)
            (tmp_path / split / f"class{number}" / "1.jpg").touch()  # nothing of it is read
    cells = cells_of("table5", data_dir=tmp_path)
    deit = find(cells, "DeiT-Small/16", "Top-1").config
    assert (deit.task, deit.recipe, deit.attention) == ("images/folder", "deit", ("softmax",) * 12)
    plus = find(cells, "Primal.+DeiT-Small/16", "Top-1").config
    assert plus.attention == ("softmax",) * 11 + ("primal",)
    assert "first guess" in find(cells, "DeiT-Small/16", "Top-5").why
    assert len(ordered(cells, [0])) == 2
    quick = find(cells_of("table5", quick=True, data_dir=tmp_path), "DeiT-Small/16", "Top-1")
    assert quick.config.epoch_steps == 2
    (tmp_path / "train" / "more").mkdir()
    why = find(cells_of("table5", data_dir=tmp_path), "DeiT-Small/16", "Top-1").why
    assert why == f"{tmp_path / 'train'} has 101 classes; expected those of ImageNet-100"


def test_quick_runs_are_other_runs():
    slow, quick = (
        find(cells_of("table1", quick=q), "JapaneseVowels", "Primal.").config for q in (False, True)
    )
    assert slow.fingerprint() != quick.fingerprint()
    assert work(quick) < work(slow) / 1000


def test_order(all_data):
    cells = [c for c in cells_of("table1") if c.row in ("JapaneseVowels", "FaceDetection")]
    runs = ordered(cells, [0, 1])
    assert len(runs) == 2 * 22
    first = runs[0]
    assert (first.task, first.seed) == ("uea/JapaneseVowels", 0)
    assert first.attention in (("primal", "primal"), ("softmax", "primal"))
    place = {(c.task, c.attention, c.seed): i for i, c in enumerate(runs)}
    vowels, faces = "uea/JapaneseVowels", "uea/FaceDetection"
    primal, linear = ("primal", "primal"), ("linear", "linear")
    assert place[vowels, primal, 0] < place[vowels, linear, 0]  # ours before peers
    assert place[vowels, primal, 0] < place[vowels, primal, 1]  # first seeds first
    assert place[vowels, primal, 0] < place[faces, primal, 0]  # small sets first
    assert place[faces, primal, 0] < place[faces, linear, 0]


def test_a_run_of_two_cells_is_done_once(all_data):
    cells = [*cells_of("table8", "HeartBeat"), *cells_of("table1", "HeartBeat")]
    runs = ordered(cells, [0])
    assert len(runs) == 12  # 2 + 11, of which one is the same
    assert len({c.fingerprint() for c in runs}) == 12


def test_work_of_softmax_grows_with_the_square(all_data):
    cells = cells_of("table2", "Text")
    primal, softmax = (find(cells, "Text (4K)", c).config for c in ("Primal.", "Trans."))
    assert work(softmax) > 5 * work(primal)
