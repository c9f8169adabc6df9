"""The kinds of files that the package reads: how a right one is made, and who reads it."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

import primal_attention as pa
from primal_attention.convert.opening import read_batches
from primal_attention.runs.extras import is_installed
from primal_attention.tasks.events.files import read_table as read_events
from primal_attention.tasks.language.text import read_text
from primal_attention.tasks.lra import listops, retrieval
from primal_attention.tasks.own.columns import Columns
from primal_attention.tasks.own.files import read_cases
from primal_attention.tasks.rl.files import read_d4rl, read_minari
from primal_attention.tasks.rl.policies import load_policy
from primal_attention.tasks.table.files import read_table
from primal_attention.train import checkpoint, read_metrics, resume

from . import tiny


@dataclass(frozen=True)
class Kind:
    """Files in a folder, of which one is damaged, and the reader of the whole."""

    files: tuple[str, ...]
    make: Callable[[Path], Any]
    read: Callable[[Path], Any]


def _texts(**files: str) -> Callable[[Path], None]:
    """{name with _ for .: text}; what ends with gz is packed."""

    def make(folder: Path) -> None:
        for name, text in files.items():
            path = folder / name.replace("_", ".")
            data = text.encode()
            path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)

    return make


TS = """@problemName Waves
@timeStamps false
@missing true
@univariate false
@dimensions 2
@equalLength false
@classLabel true up down
@data
1.0,2.5,-3:0.5,0.25,1:up
4,5,?:1,1,2:down
7,1,2,2:1,0,0,1:up
"""
CSV = "case,at,a,b,kind\n" + "".join(
    f"{c},{t},{c + t / 3:.3f},{t - c},{'xy'[c % 2]}\n" for c in range(6) for t in range(4)
)
EVENTS = "sequence\ttime\ttype\n" + "".join(
    f"{s}\t{t * 1.5 + s}\t{'abc'[t % 3]}\n" for s in range(4) for t in range(6)
)
ROWS = "id,age,town,when,label\n" + "".join(
    f"{i},{20 + i},{'uv'[i % 2]},2024-01-{i + 1:02d},{'yes' if i % 3 else 'no'}\n"
    for i in range(12)
)
LISTOPS = "Source\tTarget\n" + "( ( ( [MAX 3 ) 7 ) ] )\t7\n[MIN 4 2 ]\t2\n" * 3
PAIRS = "1\tone\ttwo\tsome text\tother text\n0\ta\tb\tfirst\tsecond\n" * 3
COLUMNS = Columns(target="kind", id="case", time="at")


def _arrays(folder: Path) -> None:
    rng = np.random.default_rng(0)
    lengths = np.array([5, 4, 3, 5])
    np.savez(folder / "a.npz", X=rng.normal(size=(4, 2, 5)), y=np.arange(4) % 2, lengths=lengths)
    np.savez_compressed(folder / "b.npz", X=rng.normal(size=(4, 2, 5)), y=np.arange(4) % 2)
    for kind in "uv":
        (folder / "c" / kind).mkdir(parents=True)
        for i in range(2):
            np.save(folder / "c" / kind / f"{i}.npy", rng.normal(size=(2, 4)))


def _episodes(folder: Path) -> None:
    import h5py

    rng = np.random.default_rng(0)
    with h5py.File(folder / "a.hdf5", "w") as file:
        file["observations"], file["actions"] = rng.normal(size=(20, 3)), rng.normal(size=(20, 2))
        file["rewards"] = rng.normal(size=20)
        file.create_dataset("terminals", data=np.arange(20) % 10 == 9, compression="gzip")
        file.create_dataset("timeouts", data=np.zeros(20, bool), compression="gzip")
    (folder / "data").mkdir()
    with h5py.File(folder / "data" / "main_data.hdf5", "w") as file:
        for i in range(2):
            group = file.create_group(f"episode_{i}")
            group["observations"], group["actions"] = (
                rng.normal(size=(6, 3)),
                rng.normal(size=(5, 2)),
            )
            group["rewards"] = rng.normal(size=5)
            group["terminations"], group["truncations"] = np.arange(5) == 4, np.zeros(5, bool)


def _policy(folder: Path) -> None:
    names = ("mlp_extractor.policy_net.0", "action_net")
    arrays = {f"{name}.weight": np.ones((3, 3)) for name in names}
    np.savez(folder / "ppo-policy.npz", **arrays, **{f"{name}.bias": np.ones(3) for name in names})


def _batches(folder: Path) -> None:
    arrays = {"input_ids": torch.ones(6, 4, dtype=torch.long), "mask": torch.ones(6, 4)}
    save_file(arrays, folder / "a.safetensors")
    np.savez(folder / "a.npz", **{name: array.numpy() for name, array in arrays.items()})


def _run(folder: Path) -> None:
    assert tiny.finish(folder / "run", tiny.config(folder)) == 0, tiny.said(folder / "run")


def _read_run(folder: Path) -> None:
    """All who look into a finished run without changing it."""
    run = folder / "run"
    model = pa.load_run(run)
    assert model.predict([np.zeros((2, 5))]).shape == (1,)
    read_metrics(run)
    checkpoint.load_latest(run / "checkpoints")
    resume(run)  # only tells the result again


def _fitted(
    estimator: type[Any], case: tuple[int, ...], **options: Any
) -> tuple[Callable[[Path], Any], Callable[[Path], Any]]:
    """How an estimator of cases of a shape is made and read."""

    def make(folder: Path) -> None:
        X, y = np.random.default_rng(0).normal(size=(8, *case)), np.arange(8) % 2
        estimator(**options).fit(X, y).save(folder / "fitted")

    def read(folder: Path) -> None:
        found = estimator.load(folder / "fitted")
        try:
            assert found.predict(np.zeros((1, *case))).shape == (1,)
        except ValueError as error:
            if not str(error).endswith(ASIDE):
                raise

    return make, read


def _encoder() -> nn.Module:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()


def _converted(folder: Path) -> None:
    pa.save(pa.convert_(_encoder(), rank=2), folder / "converted")


def _read_lra(module: Any) -> Callable[[Path], Any]:
    def read(folder: Path) -> None:
        source = module.source(folder / "a.tsv", "train")
        if lines := list(source.items()):
            source.encode(lines, 0)

    return read


# what another device or another question would be answered, and no fault of the file
ASIDE = ("as in fit", "as with set_params(device='cpu')")
WITH_BANK = {**tiny.ESTIMATOR, "ensemble": "best", "folds": 2}
BRIEF = {"width": 8, "heads": 2, "feedforward": 8, "steps": 2, "epochs": 1, "random_state": 0}
FITTED = ("fitted/config.json", "fitted/weights.safetensors")
RUN_FILES = ("config.json", "result.json", "reader.json", "best.safetensors", "metrics.jsonl",
             "checkpoints/step-00000009/state.json",
             "checkpoints/step-00000009/weights.safetensors")  # fmt: skip
KINDS: dict[str, Kind] = {
    "ts": Kind(("a.ts",), _texts(a_ts=TS), lambda f: read_cases(f / "a.ts", Columns())),
    "ts.gz": Kind(("a.ts.gz",), _texts(a_ts_gz=TS), lambda f: read_cases(f / "a.ts.gz", Columns())),
    "csv": Kind(("a.csv",), _texts(a_csv=CSV), lambda f: read_cases(f / "a.csv", COLUMNS)),
    "csv.gz": Kind(("a.csv.gz",), _texts(a_csv_gz=CSV),
                   lambda f: read_cases(f / "a.csv.gz", COLUMNS)),
    "csv of rows": Kind(("a.csv",), _texts(a_csv=ROWS),
                        lambda f: read_table(f / "a.csv", target="label", id="id")),
    "tsv of events": Kind(("a.tsv",), _texts(a_tsv=EVENTS), lambda f: read_events(f / "a.tsv")),
    "tsv of ListOps": Kind(("a.tsv",), _texts(a_tsv=LISTOPS), _read_lra(listops)),
    "tsv of pairs": Kind(("a.tsv",), _texts(a_tsv=PAIRS), _read_lra(retrieval)),
    "text": Kind(("a.txt",), _texts(a_txt=TS * 3), lambda f: read_text(f / "a.txt")),
    "npz": Kind(("a.npz",), _arrays, lambda f: read_cases(f / "a.npz", Columns())),
    "packed npz": Kind(("b.npz",), _arrays, lambda f: read_cases(f / "b.npz", Columns())),
    "npy": Kind(("c/u/0.npy",), _arrays, lambda f: read_cases(f / "c", Columns())),
    "policy": Kind(("ppo-policy.npz",), _policy, lambda f: load_policy(f / "ppo-policy.npz")),
    "hdf5": Kind(("a.hdf5",), _episodes, lambda f: read_d4rl(f / "a.hdf5")),
    "hdf5 of Minari": Kind(("data/main_data.hdf5",), _episodes, read_minari),
    "batches": Kind(("a.safetensors",), _batches, lambda f: read_batches(f / "a.safetensors", 2)),
    "npz of batches": Kind(("a.npz",), _batches, lambda f: read_batches(f / "a.npz", 2)),
    "run": Kind(tuple(f"run/{name}" for name in RUN_FILES), _run, _read_run),
    "classifier": Kind(FITTED, *_fitted(pa.PrimalFormerClassifier, (2, 6), **tiny.ESTIMATOR)),
    "regressor": Kind(FITTED, *_fitted(pa.PrimalFormerRegressor, (2, 6), **tiny.ESTIMATOR)),
    "with bank": Kind(FITTED, *_fitted(pa.PrimalFormerClassifier, (2, 6), **WITH_BANK)),
    "bank": Kind(FITTED, *_fitted(pa.PrimalRocketRegressor, (2, 6), groups=2, random_state=0)),
    "bags": Kind(FITTED, *_fitted(pa.PrimalBagClassifier, (3, 2), **BRIEF)),
    "rows": Kind(FITTED, *_fitted(pa.PrimalTableClassifier, (3,), **BRIEF)),
    "sparse": Kind(FITTED, *_fitted(pa.SparseKernelClassifier, (3,), n_preimages=2, steps=2)),
    "converted": Kind(("converted/conversion.json", "converted/weights.safetensors"), _converted,
                      lambda f: pa.load(f / "converted", _encoder())),
}  # fmt: skip
if not is_installed("h5py"):
    KINDS = {name: kind for name, kind in KINDS.items() if kind.make is not _episodes}


def copies(kind: Kind, folder: Path) -> None:
    """A folder with the files of a kind, anew."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    kind.make(folder)
