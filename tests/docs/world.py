"""What the commands of the documentation find in their folder: small data sets in the published
formats, files of one's own, models of Hugging Face with random weights, and trained runs."""

import random
from pathlib import Path

import numpy as np

from ..conftest import write_sensors

VOWELS = ("train", "uea/JapaneseVowels", "--width", 8, "--heads", 2, "--feedforward", 8, "--rank",
          2, "--epochs", 1, "--quiet")  # fmt: skip
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "bad", "good", "film", "in",
              "the", "of"]  # fmt: skip


def make_files(folder: Path, sensors: Path, people: Path) -> None:
    """The files that a reader brings; pages name them."""
    for name in ("sensors.csv", "cases.csv"):
        (folder / name).write_bytes(sensors.read_bytes())
    (folder / "new.csv").write_bytes(sensors.read_bytes())
    (folder / "people.csv").write_bytes(people.read_bytes())
    (folder / "later.csv").write_bytes(people.read_bytes())
    write_sensors(folder / "later-sensors.csv", seed=1)
    rows = (line.split(",", 1)[1] for line in people.read_text().splitlines())
    (folder / "plain.csv").write_text("\n".join(rows) + "\n")  # without the names
    (folder / "log.csv").write_text(log())
    (folder / "book.txt").write_text("Once upon a time there was a kernel and its space.\n" * 60)
    (folder / "lines.txt").write_text("a bad film\nthe good film of the film\n")
    (folder / "reviews.txt").write_text("a bad film\nthe good film of the film\n")
    (folder / "reviews.csv").write_text("text,label\na bad film,0\ngood film,1\nthe film,1\n")
    draw = np.random.default_rng(0)
    ids = draw.integers(5, len(VOCABULARY), (40, 6))
    np.savez(folder / "texts.npz", input_ids=ids, attention_mask=np.ones_like(ids))
    pictures(folder / "pictures", 6)
    pictures(folder / "photos", 1)


def log() -> str:
    rows = (
        f"{sequence},{1.5 * i + 0.1 * sequence:.1f},{'abc'[(sequence + i) % 3]}"
        for sequence in range(60)
        for i in range(15)
    )
    return "\n".join(["sequence,time,type", *rows]) + "\n"


def pictures(folder: Path, each: int) -> None:
    from PIL import Image

    draw = np.random.default_rng(1)
    for kind in ("cat", "dog"):
        (folder / kind).mkdir(parents=True)
        for i in range(each):
            pixels = draw.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / kind / f"{i}.png")


# -- data sets ------------------------------------------------------------------------------------

SERIES = {"Handwriting": (3, 26), "Heartbeat": (5, 2), "SpokenArabicDigits": (3, 10),
          "UWaveGestureLibrary": (3, 8)}  # fmt: skip
REVIEW = "a film of the good and of the bad, seen by nobody but a test"


def make_data(data: Path) -> None:
    """A data folder as docs/training.md describes it, with a few cases of every set."""
    draw = np.random.default_rng(2)
    for name, (channels, classes) in SERIES.items():
        place = data / "uea" / name
        place.mkdir(parents=True)
        for split in ("TRAIN", "TEST"):
            (place / f"{name}_{split}.ts").write_text(series(draw, channels, classes))
    for split in ("train", "test"):
        for kind in ("neg", "pos"):
            place = data / "imdb" / "aclImdb" / split / kind
            place.mkdir(parents=True)
            for i in range(10):
                (place / f"{i}_5.txt").write_text(f"{kind} {REVIEW}" * (i + 1))
    batches(data / "cifar10", draw)
    for folder, part in (("stackoverflow", ""), ("book_order", "-1")):
        events(data / "events" / folder, part, draw)
    articles = data / "text" / "wikitext-103"
    articles.mkdir(parents=True)
    for split in ("train", "valid", "test"):
        (articles / f"wiki.{split}.tokens").write_text(" = A = \n\n the film of the film\n" * 40)
    episodes(data / "d4rl", draw)


def series(draw: np.random.Generator, channels: int, classes: int, each: int = 4) -> str:
    header = f"@classLabel true {' '.join(str(i + 1) for i in range(classes))}\n@data\n"
    lines = []
    for case in range(each * classes):
        values = draw.normal(size=(channels, 12))
        dimensions = [",".join(f"{v:.3f}" for v in row) for row in values]
        lines.append(":".join([*dimensions, str(case % classes + 1)]))
    return header + "\n".join(lines) + "\n"


def batches(folder: Path, draw: np.random.Generator) -> None:
    """CIFAR-10, forty pictures a file."""
    folder.mkdir()
    for name in [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]:
        records = draw.integers(0, 256, (40, 3073), dtype=np.uint8)
        records[:, 0] = np.arange(40) % 10
        (folder / name).write_bytes(records.tobytes())


def events(folder: Path, part: str, draw: np.random.Generator) -> None:
    folder.mkdir(parents=True)
    for split in ("train", "test"):
        types = draw.integers(1, 3, (12, 8))
        times = draw.exponential(size=types.shape).cumsum(1)
        for kind, rows in (("event", types), ("time", times)):
            text = "\n".join(" ".join(f"{v:g}" for v in row) for row in rows)
            (folder / f"{kind}{part}-{split}.txt").write_text(text + "\n")


def episodes(folder: Path, draw: np.random.Generator) -> None:
    """Hopper as D4RL has it."""
    from primal_attention.tasks.rl.files import write_d4rl
    from primal_attention.tasks.rl.trajectories import Trajectories

    folder.mkdir()
    steps, ends = 60, np.arange(60) % 12 == 11
    for name in ("hopper_medium-v2", "hopper_medium_replay-v2", "hopper_medium_expert-v2"):
        recorded = Trajectories(
            name, draw.normal(size=(steps, 11)).astype(np.float32),
            draw.uniform(-1, 1, (steps, 3)).astype(np.float32),
            draw.normal(size=steps).astype(np.float32), ends, np.zeros(steps, bool),
        )  # fmt: skip
        write_d4rl(folder / f"{name}.hdf5", recorded)


def make_policies(folder: Path) -> None:
    folder.mkdir()
    for algorithm in ("sac", "tqc", "trpo", "ars"):
        file = folder / f"{algorithm}-Hopper-v3.npz"
        np.savez(file, **{"actor.mu.weight": np.zeros((3, 11), np.float32)})


# -- models and runs ------------------------------------------------------------------------------


def make_models(folder: Path) -> None:
    """models/bert and models/classifier: folders of Hugging Face."""
    import torch
    import transformers

    torch.manual_seed(0)
    for name in ("bert", "classifier"):
        place = folder / "models" / name
        place.mkdir(parents=True)
        (place / "vocab.txt").write_text("\n".join(VOCABULARY))
        transformers.BertTokenizerFast(str(place / "vocab.txt")).save_pretrained(place)
        config = transformers.BertConfig(
            vocab_size=len(VOCABULARY), hidden_size=64, num_hidden_layers=4, num_attention_heads=2,
            intermediate_size=16, num_labels=2,
        )  # fmt: skip
        kind = "MaskedLM" if name == "bert" else "SequenceClassification"
        getattr(transformers, f"BertFor{kind}")(config).save_pretrained(place)


def make_runs(run) -> None:
    """runs/... and bench/first, made by `run(*words)` in the working directory."""
    small = VOWELS[2:]
    run(*VOWELS, "--name", "primal")
    run(*VOWELS, "--name", "japanese-vowels")
    run(*VOWELS, "--attention", "softmax", "--name", "softmax")
    run(*VOWELS, "--attention", "softmax,primal", "--name", "mixed")
    run(*VOWELS, "--seeds", "0-1", "--name", "seeds")
    own = ("--target", "state", "--id", "machine", "--time", "at")
    run("train", "--data", "sensors.csv", *own, *small, "--name", "sensors")
    run("train", "table/csv", "--data", "people.csv", "--target", "out", *small, "--id", "name",
        "--name", "people")  # fmt: skip
    run("train", "events/csv", "--data", "log.csv", *small, "--name", "events")
    run("train", "lm/text", "--data", "book.txt", "--tokens", "characters", *small, "--name",
        "text", "--length", 48)  # fmt: skip
    run("train", "--data", "pictures", *small, "--name", "pictures")
    run("bench", "--attention", "softmax,primal", "--lengths", "16,32", "--repeats", 1, "--quiet",
        "--out", "bench/first")  # fmt: skip
    make_classifier()


def make_classifier() -> None:
    import primal_attention as pa

    draw = random.Random(0)
    X = [np.array([[draw.gauss(i % 2, 1) for _ in range(10)] for _ in range(2)]) for i in range(24)]
    classifier = pa.PrimalFormerClassifier(ensemble="fast", random_state=0)
    classifier.fit(X, ["ok" if i % 2 else "worn" for i in range(24)]).save("saved")
