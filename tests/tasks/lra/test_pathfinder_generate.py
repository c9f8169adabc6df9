"""Pathfinder by rule: what is on a picture, files, resuming."""

import numpy as np
import pytest

from primal_attention.tasks import DataError

pytest.importorskip("PIL")

from primal_attention.tasks.lra import pathfinder_generate, snakes, strokes
from primal_attention.tasks.lra.pathfinder_generate import PathfinderSettings, generate

SMALL = PathfinderSettings(pictures=12)


@pytest.fixture(scope="module")
def drawings():
    rng = np.random.default_rng(0)
    return [snakes.draw(rng) for _ in range(12)]


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(pathfinder_generate, "CHUNK", 5)


def test_dots_are_the_ends_that_the_label_says(drawings):
    assert {d.label for d in drawings} == {0, 1}
    for drawing in drawings:
        begin, end = drawing.dots
        (a, a_end), (b, b_end) = drawing.ends
        same = [(a, a_end), (b, b_end)]
        crossed = [(a, b_end), (b, a_end)]
        assert (begin, end) in (same if drawing.label else crossed)
        distance = np.hypot(a[0] - b[0], a[1] - b[1])
        assert abs(distance - snakes.SEED_DISTANCE) < 1


def test_picture(drawings):
    for drawing in drawings:
        pixels = drawing.pixels
        assert pixels.shape == (32, 32)
        assert pixels.dtype == np.uint8
        assert (pixels.min(), pixels.max()) == (0, 255)
        for y, x in drawing.dots:
            assert pixels[y, x] > 100
        assert 0 < drawing.distractors <= snakes.DISTRACTORS


def test_snakes_are_dashed_and_do_not_cross(monkeypatch):
    kept = []
    two_snakes = snakes._two_snakes
    monkeypatch.setattr(snakes, "_two_snakes", lambda rng: kept.append(two_snakes(rng)) or kept[-1])
    rng = np.random.default_rng(1)
    for _ in range(3):
        snakes.draw(rng)
    done = [found for found in kept if found is not None]
    assert len(done) == 3
    step = strokes.LENGTH + 2 * strokes.MARGIN
    for _, _, (a, b) in done:
        assert len(a.paddles) == len(b.paddles) == snakes.CONTOUR
        heads = [np.array([place for place, _ in s.paddles[1:]]) for s in (a, b)]
        for points in heads:
            gaps = np.linalg.norm(np.diff(points, axis=0), axis=1)
            assert 0.25 * step < gaps.min() <= gaps.max() < 2 * step
        apart = np.linalg.norm(heads[0][:, None] - heads[1][None], axis=-1)
        assert apart.min() >= 1


def test_pictures_follow_from_the_generator(drawings):
    again = snakes.draw(np.random.default_rng(0))
    np.testing.assert_array_equal(again.pixels, drawings[0].pixels)
    other = snakes.draw(np.random.default_rng(9))
    assert (other.pixels != drawings[0].pixels).any()


def test_files_and_statistics(tmp_path, task, small_chunks):
    folder = tmp_path / "data" / "lra" / "pathfinder32" / "curv_contour_length_14"
    seen = []
    made = generate(folder, SMALL, progress=lambda *done: seen.append(done))
    assert seen == [(i, 3) for i in range(4)]
    assert made.cases == 12
    assert sum(made.classes.values()) == pytest.approx(1)
    assert 1 < made.distractors <= 5
    sets = task("pathfinder").load(tmp_path / "data")
    assert [len(s) for s in sets.values()] == [9, 1, 2]
    lines = (folder / "metadata" / "1.npy").read_text().splitlines()
    assert lines[2].startswith("imgs/1 sample_2.png 2 ")
    assert [len(line.split()) for line in lines] == [12] * 5
    joined = sum(int(s.labels.sum()) for s in sets.values())
    assert made.classes["joined"] == pytest.approx(joined / 12, abs=1e-3)


def test_interrupted_gives_the_same(tmp_path, small_chunks, monkeypatch):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    generate(whole, SMALL)

    def stop(done, total):
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate(cut, SMALL, progress=stop)
    first = (cut / "imgs/0/sample_0.png").stat().st_mtime_ns
    with monkeypatch.context() as patch:  # and again, within a chunk and a file
        pictures = iter(range(3))

        def killed(rng):
            if next(pictures) == 2:
                (cut / "imgs/1/sample_1.png").write_bytes(b"\x89PNG")
                raise KeyboardInterrupt
            return draw(rng)

        draw = pathfinder_generate.draw
        patch.setattr(pathfinder_generate, "draw", killed)
        with pytest.raises(KeyboardInterrupt):
            generate(cut, SMALL)
    assert not (cut / "metadata/1.npy").exists()
    generate(cut, SMALL)
    assert (cut / "imgs/0/sample_0.png").stat().st_mtime_ns == first
    files = [p.relative_to(whole) for p in whole.rglob("*") if p.is_file()]
    assert len(files) == 12 + 3 + 2
    for name in files:
        assert (cut / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.slow
def test_processes_give_the_same(tmp_path, small_chunks):
    for workers in (1, 2):
        generate(tmp_path / str(workers), SMALL, workers=workers)
    assert len(list((tmp_path / "2").rglob("*.png"))) == 12
    for path in (tmp_path / "1").rglob("*.png"):
        other = tmp_path / "2" / path.relative_to(tmp_path / "1")
        assert other.read_bytes() == path.read_bytes()


def test_pictures_of_others_are_not_mixed_in(tmp_path, small_chunks, write):
    generate(tmp_path / "own", SMALL)
    with pytest.raises(DataError, match=r"has pictures of {'pictures': 12, 'seed': 0}; expected"):
        generate(tmp_path / "own", PathfinderSettings(pictures=12, seed=1))
    write(tmp_path / "theirs" / "metadata" / "0.npy", "imgs/0 sample_0.png 0 1\n")
    with pytest.raises(DataError, match="has pictures that were not made here"):
        generate(tmp_path / "theirs", SMALL)


@pytest.mark.parametrize("wrong", [{"pictures": 9}, {"seed": -1}])
def test_wrong_settings(wrong):
    ((name, value),) = wrong.items()
    with pytest.raises(ValueError, match=f"{name} is {value}; expected an integer of at least"):
        PathfinderSettings(**wrong)
