"""The Long-Range Arena: five tasks of token sequences, one thousand to four thousand long."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from ..base import Task
from ..cifar10 import HOW_TO_GET as GET_CIFAR10
from . import image, listops, pathfinder, retrieval, text
from .recipes import recipes
from .task import ArenaTask

__all__ = ["ArenaTask", "arena_tasks"]

_RELEASE = "lra_release.gz of github.com/google-research/long-range-arena"


def arena_tasks() -> list[Task]:
    """The five tasks."""
    return [
        _task(
            "listops",
            listops,
            "value of nested lists: MIN, MAX, MED and SM of digits",
            "96000/2000/2000 cases, length 501-1999, 10 classes, 16 tokens",
            max_length=2000,
            padded_length=2048,
            hint="expected {folder}/lra/listops-1000/basic_{{train,val,test}}.tsv: make them "
            "with `primal data generate listops`, or unpack " + _RELEASE + " there",
        ),
        _task(
            "text",
            text,
            "positive or negative review, as bytes",
            "25000/25000 cases, cut at 4000 bytes, 2 classes, 257 tokens",
            splits=("train", "test"),
            max_length=4000,
            padded_length=4096,
            hint="expected {folder}/imdb/aclImdb/{{train,test}}/{{neg,pos}}/*.txt, or a tar "
            "file of them in {folder}/imdb: get aclImdb_v1.tar.gz from "
            "ai.stanford.edu/~amaas/data/sentiment",
        ),
        _task(
            "retrieval",
            retrieval,
            "whether one of two papers cites the other, as bytes",
            "147086/18090/17437 pairs, cut at 4000 bytes, 2 classes, 257 tokens",
            max_length=4000,
            padded_length=4096,
            pairs=True,
            hint="expected {folder}/lra/tsv_data/new_aan_pairs.{{train,eval,test}}.tsv: "
            "unpack " + _RELEASE + " there",
        ),
        _task(
            "image",
            image,
            "object in a picture, pixel by pixel",
            "45000/5000/10000 cases, length 1024, 10 classes, 256 tokens",
            max_length=1024,
            padded_length=1024,
            hint="expected {folder}/cifar10/data_batch_1.bin and the other batches: "
            + GET_CIFAR10,
        ),
        _task(
            "pathfinder",
            pathfinder,
            "whether a dashed line joins two dots, pixel by pixel",
            "160000/20000/20000 cases, length 1024, 2 classes, 256 tokens",
            max_length=1024,
            padded_length=1024,
            hint="expected {folder}/lra/pathfinder32/" + pathfinder.LEVEL + "/metadata and "
            "imgs: make them with `primal data generate pathfinder`, or unpack " + _RELEASE
            + " there",
        ),
    ]  # fmt: skip


def _task(
    name: str,
    module: ModuleType,
    about: str,
    facts: str,
    **options: Any,
) -> Task:
    return ArenaTask(
        name=f"lra/{name}",
        description=f"{about}: {facts}",
        recipes=recipes(name),
        facts=facts,
        classes=module.CLASSES,
        vocabulary=module.VOCABULARY,
        find=module.find,
        source=module.source,
        **options,
    )
