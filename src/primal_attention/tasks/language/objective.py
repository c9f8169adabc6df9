"""The objective of language models: the likelihood of the next token."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.nn import functional as F

from ...models.cooccurrence import cooccurrence_
from ...models.language import LanguageModel
from ...runs.errors import NotFiniteError
from ..base import Task
from ..buckets import shuffled_batches
from ..classification.result import percent
from ..objective import Ended, Found, Objective, RunResult
from .result import LanguageResult
from .settings import LanguageConfig
from .text import Piece, TextData, Tokens, Vocabulary, fingerprint

LOOKED_AT = 4  # pieces, after an epoch
NUMBERS = 2**24  # logits of a batch in an evaluation


@dataclass(frozen=True)
class Evaluation:
    """Means over tokens."""

    loss: float
    accuracy: float


class Language(Objective[LanguageConfig, Piece]):
    """Learns from the pieces of a text; the validation text chooses the epoch by its loss."""

    kept: ClassVar[tuple[str, ...]] = ("accuracy", "loss")
    result_class: ClassVar[type[RunResult]] = LanguageResult

    examples: TextData

    def __init__(
        self,
        config: LanguageConfig,
        vocabulary: Vocabulary,
        train: Tokens,
        validation: Tokens,
        *,
        test: Callable[[], Tokens | None] = lambda: None,
        fingerprints: Mapping[str, str] | None = None,
    ) -> None:
        self.config, self.vocabulary, self.train, self.test = config, vocabulary, train, test
        self.examples = TextData(train, config.length)
        self.selection = TextData(validation, config.length)
        self.fingerprints = dict(fingerprints or {})

    @classmethod
    def load(cls, task: Task, config: LanguageConfig) -> Language:
        texts = task.load(config.data_dir, splits=("train", "validation"))
        known = Vocabulary.of(texts["train"], config.tokens, config.vocabulary)

        def test() -> Tokens | None:
            if "test" in task.status(config.data_dir).missing:
                return None
            return known.encode(task.load(config.data_dir, splits=("test",))["test"])

        train, validation = (known.encode(texts[split]) for split in ("train", "validation"))
        prints = {split: fingerprint(text) for split, text in texts.items()}
        return cls(config, known, train, validation, test=test, fingerprints=prints)

    def reading(self) -> dict[str, Any]:
        """How new texts are read."""
        return self.vocabulary.to_dict()

    @property
    def selection_facts(self) -> dict[str, str]:
        return {"split": "validation"}

    def model(self) -> LanguageModel:
        model = LanguageModel(len(self.vocabulary), **self.config.model_options())
        if self.config.start == "cooccurrence":
            cooccurrence_(model.embed, [self.train], self.config.window)
        return model

    def batches(self, number: int) -> list[list[int]]:
        size, seed = self.config.batch_size, self.config.seed
        return shuffled_batches(len(self.examples), size, seed, number)

    def inputs(self, batch: Piece) -> Sequence[Tensor]:
        return (batch.tokens,)

    def loss(self, model: nn.Module, batch: Piece) -> Tensor:
        logits = model(batch.tokens)
        return F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())

    def terms(self, indices: Sequence[int]) -> int:
        return self.examples.count(indices)

    def evaluate(self, fabric: Fabric, model: nn.Module, epoch: int) -> Found:
        found = judged(fabric, model, self.selection, len(self.vocabulary))
        if not math.isfinite(found.loss):
            raise NotFiniteError(
                f"training stopped in epoch {epoch}: the validation loss is {found.loss}"
            )
        metrics = {"split": "validation", "accuracy": found.accuracy, "loss": found.loss}
        shown = f"perplexity {math.exp(found.loss):.2f}"
        return Found(metrics, f"validation {shown}, {percent(found.accuracy)}")

    def rank(self, numbers: Mapping[str, float]) -> tuple[float, ...]:
        return (-numbers["loss"],)

    def looked_at(self) -> Iterator[Piece]:
        yield self.selection.__getitems__(list(range(min(LOOKED_AT, len(self.selection)))))

    def result(self, fabric: Fabric, model: nn.Module, ended: Ended) -> dict[str, Any]:
        if (best := ended.best) is None:
            raise RuntimeError("a run of at least one epoch has a best one")
        test = self.test()
        data = self.selection if test is None else TextData(test, self.config.length)
        found = judged(fabric, model, data, len(self.vocabulary))
        return {
            "split": "validation" if test is None else "test",
            "perplexity": math.exp(found.loss),
            "loss": found.loss,
            "accuracy": found.accuracy,
            "tokens": data.predicted,
            "vocabulary": len(self.vocabulary),
            "epoch": best["epoch"],
            "last_accuracy": ended.last,
            "validation_accuracy": best["accuracy"],
            "validation_loss": best["loss"],
            "unigram": self._unigram(data),
        }

    def _unigram(self, data: TextData) -> float:
        """The perplexity of the shares of tokens in the training text, one more of each."""
        counts = np.bincount(self.train, minlength=len(self.vocabulary)) + 1.0
        logs = torch.from_numpy(np.log(counts / counts.sum()))
        targets = data.__getitems__(range(len(data))).targets
        return math.exp(-float(logs[targets[targets >= 0]].mean()))

    def opening(self, parameters: int, steps: int) -> str:
        config = self.config
        return (
            f"{config.task}, {' + '.join(config.attention)}, seed {config.seed}: {parameters:,} "
            f"parameters, {len(self.train):,} tokens, {len(self.vocabulary):,} known, {steps} steps"
        )


@torch.inference_mode()
def judged(fabric: Fabric, model: nn.Module, data: TextData, vocabulary: int) -> Evaluation:
    """Evaluate a model, which is left in eval mode; the processes share the pieces."""
    model.eval()
    sums = torch.zeros(2, dtype=torch.float64)
    length = data.__getitems__([0]).tokens.shape[1]
    size = max(1, NUMBERS // (length * vocabulary))
    starts = range(0, len(data), size)[fabric.global_rank :: fabric.world_size]
    for first in starts:
        batch: Piece = fabric.to_device(
            data.__getitems__(range(first, min(first + size, len(data))))
        )
        logits, targets = model(batch.tokens).flatten(0, 1), batch.targets.flatten()
        sums[0] += float(F.cross_entropy(logits, targets, reduction="sum"))
        sums[1] += float((logits.argmax(-1) == targets).sum())
    if fabric.world_size > 1:
        sums = cast(Tensor, fabric.all_reduce(sums.to(fabric.device), reduce_op="sum")).cpu()
    loss, right = (sums / data.predicted).tolist()
    return Evaluation(loss, right)
