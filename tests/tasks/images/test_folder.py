import io

import numpy as np
import pytest

pytest.importorskip("PIL")
from PIL import Image

from primal_attention.tasks import DataError, get_task
from primal_attention.tasks.images import folder as stores
from primal_attention.tasks.images.folder import build, decode, decode_bytes, list_split, open_split
from primal_attention.tasks.stores import heard_by


def read(root, split="train", side=6):
    return open_split(root, split, side, name="folder")


def test_classes_and_files_are_sorted(image_folder):
    root = image_folder(("dog", "cat"))
    (root / "train" / "cat" / "notes.txt").write_text("not an image")
    (root / "train" / "cat" / "._0.png").write_text("of a file manager")
    (root / "train" / "cat" / "1.png").rename(root / "train" / "cat" / "9.PNG")
    s = read(root)
    assert s.classes == ("cat", "dog")
    assert s.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert s.images.shape == (6, 6, 6, 3)
    expected = [decode(root / "train" / "cat" / f, 6) for f in ("0.png", "2.png", "9.PNG")]
    assert np.array_equal(s.images[:3], expected)


def test_an_image_is_its_central_square(tmp_path):
    pixels = np.zeros((10, 30, 3), np.uint8)
    pixels[:, 10:20] = (10, 20, 30)
    Image.fromarray(pixels).save(tmp_path / "wide.png")
    assert (decode(tmp_path / "wide.png", 10) == (10, 20, 30)).all()
    Image.fromarray(pixels.transpose(1, 0, 2)).save(tmp_path / "high.png")
    assert (decode(tmp_path / "high.png", 10) == (10, 20, 30)).all()


@pytest.mark.parametrize("mode", ["L", "LA", "P", "RGBA", "CMYK", "I;16"])
def test_other_modes_become_rgb(mode, tmp_path):
    grey = 204  # in the palette, too
    image = Image.new("RGB", (8, 8), (grey,) * 3)
    image = (
        Image.fromarray(np.full((8, 8), grey * 257, "u2")) if "I" in mode else image.convert(mode)
    )
    assert image.mode == mode
    path = tmp_path / ("image.jpg" if mode == "CMYK" else "image.png")
    image.save(path, **({"transparency": b"\0\1"} if mode == "P" else {}))
    assert np.abs(decode(path, 4).astype(int) - grey).max() <= 2


def test_the_store_is_mapped_and_built_once(image_folder, monkeypatch):
    root = image_folder()
    first = read(root)

    def never(*_, **__):
        raise AssertionError("decoded again")

    monkeypatch.setattr(stores, "decode", never)
    again = read(root)
    assert isinstance(again.images, np.memmap)
    assert np.array_equal(first.images, again.images)
    assert first.fingerprint() == again.fingerprint()


def test_other_files_are_another_store(image_folder):
    root = image_folder()
    before = read(root).fingerprint()
    Image.new("RGB", (9, 9), (1, 2, 3)).save(root / "train" / "cat" / "0.png")
    after = read(root)
    assert (after.images[0] == (1, 2, 3)).all()
    assert after.fingerprint() != before
    assert read(root, side=5).images.shape[1] == 5


def test_a_build_that_broke_goes_on(image_folder, tmp_path, monkeypatch):
    root = image_folder(train=5)
    listing = list_split(root, "train")
    build(listing, tmp_path / "whole", 6, chunk=3)
    broken = root / "train" / "dog" / "2.png"  # number 7 of 10, in the third chunk
    content = broken.read_bytes()
    broken.write_bytes(content[:40])
    with pytest.raises(DataError, match=r"dog/2\.png cannot be read as an image"):
        build(listing, tmp_path / "cut", 6, chunk=3)
    assert not (tmp_path / "cut" / "store.json").exists()

    broken.write_bytes(content)
    decoded, told = [], []

    def watched(path, side):
        decoded.append(path.name)
        return decode(path, side)

    monkeypatch.setattr(stores, "decode", watched)
    with heard_by(told.append):
        build(listing, tmp_path / "cut", 6, chunk=3)
    assert len(decoded) == 4
    assert told == [(str(root / "train"), done, 10) for done in (0, 9, 10)]
    for name in ("images.npy", "store.json"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.parametrize("content", [b"", b"no image at all", b"\x89PNG\r\n\x1a\n" + b"\0" * 30])
def test_a_broken_image_is_named(content, image_folder):
    root = image_folder()
    (root / "train" / "dog" / "1.png").write_bytes(content)
    with pytest.raises(DataError, match=r"train/dog/1\.png cannot be read as an image"):
        read(root)


def test_images_from_elsewhere_are_of_known_formats_and_sizes(monkeypatch):
    def file(form, side=20):
        made = io.BytesIO()
        Image.new("RGB", (side, side), (9, 8, 7)).save(made, form)
        return made.getvalue()

    for form in ("PNG", "JPEG"):
        assert decode_bytes(file(form), 4, "the body").shape == (4, 4, 3)
    with pytest.raises(DataError, match="the body cannot be read as an image"):
        decode_bytes(file("EPS"), 4, "the body")  # Pillow would start Ghostscript
    monkeypatch.setattr(stores, "PIXELS", 399)
    with pytest.raises(DataError, match="the body has 20 x 20 pixels; expected at most 399"):
        decode_bytes(file("PNG"), 4, "the body")


def test_a_truncated_jpeg_is_named(image_folder):
    root = image_folder()
    path = root / "val" / "cat" / "x.jpg"
    noise = np.random.default_rng(0).integers(0, 256, (50, 50, 3), dtype=np.uint8)
    Image.fromarray(noise).save(path)
    path.write_bytes(path.read_bytes()[:900])
    with pytest.raises(DataError, match=r"cat/x\.jpg cannot be read as an image"):
        read(root, "test")


def test_classes_must_be_the_same_and_have_images(image_folder):
    root = image_folder()
    (root / "val" / "emu").mkdir()
    for split in ("train", "test"):  # before training, not after it
        with pytest.raises(DataError, match="val has a class 'emu'; expected the classes of"):
            read(root, split)
    (root / "train" / "emu").mkdir()
    with pytest.raises(DataError, match=r"emu has no images; expected \.jpg"):
        read(root)
    (root / "val" / "emu").rmdir()
    with pytest.raises(DataError, match="val lacks the class 'emu'"):
        read(root)


def test_a_damaged_store_is_named(image_folder, cache):
    root = image_folder()
    read(root)
    (file,) = cache.rglob("images.npy")
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(DataError, match=r"is damaged .*; remove it to build it again"):
        read(root)


def test_a_cache_that_cannot_be_written_is_named(image_folder, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PRIMAL_ATTENTION_CACHE", str(tmp_path / "file"))
    with pytest.raises(DataError, match=r"cannot be written .*PRIMAL_ATTENTION_CACHE"):
        read(image_folder())


def test_the_task_says_what_is_missing(image_folder, tmp_path):
    task = get_task("images/folder")
    with pytest.raises(DataError, match=r"train split of images/folder is not here; .*--data-dir"):
        task.load()
    with pytest.raises(DataError, match="'/nowhere'; expected an existing folder"):
        task.load("/nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"expected .*empty/train/<class>/\*\.jpg"):
        task.load(tmp_path / "empty")
    (tmp_path / "empty" / "train").mkdir()
    with pytest.raises(DataError, match="train is empty; expected a folder with images"):
        task.load(tmp_path / "empty", splits=("train",))

    status = task.status(image_folder())
    assert status.complete
    assert set(status.places) == {"train", "test"}


def test_the_task_stores_more_than_a_model_sees(image_folder):
    sets = get_task("images/folder").load(image_folder(train=1, val=1))
    assert sets["train"].images.shape == (2, 256, 256, 3)
    assert sets["test"].classes == sets["train"].classes == ("cat", "dog")
