"""What a run that learned a language is worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from ..classification.result import ACCURACY, percent
from ..objective import Command, Measure, RunResult


@dataclass(frozen=True, kw_only=True)
class LanguageResult(RunResult):
    """`perplexity` = exp(loss), the mean over all tokens of the test text of the negative
    log-likelihood in nats; `accuracy` of the likeliest token. `unigram` is the perplexity of the
    shares of tokens in the training text."""

    measure: ClassVar[Measure] = ACCURACY

    split: str
    perplexity: float
    loss: float
    accuracy: float
    tokens: int
    vocabulary: int
    epoch: int
    last_accuracy: float
    validation_accuracy: float
    validation_loss: float
    unigram: float

    @property
    def meaning(self) -> str:
        return f"next token of the {self.split} text, of the epoch with the best validation loss"

    @property
    def selected(self) -> float:
        return self.validation_accuracy

    @property
    def of_unseen(self) -> bool:
        return self.split == "test"

    def rows(self, command: Command) -> dict[str, str]:
        return {
            "perplexity": f"{self.perplexity:.2f}  of the {self.split} text "
            f"({self.tokens:,} tokens, vocabulary {self.vocabulary:,}); "
            f"shares of tokens alone: {self.unigram:.1f}",
            "accuracy": f"{percent(self.accuracy)}  {self.meaning}",
            "model": f"{self.parameters:,} parameters, epoch {self.epoch} was chosen",
            "cost": f"{self.seconds:.1f} s, peak memory {self.peak_memory_mb:.0f} MB",
            "run": str(self.run),
            "next": f'primal generate {self.run} "The"',
        }

    @classmethod
    def told(
        cls, result: Mapping[str, Any], epochs: Sequence[Mapping[str, Any]]
    ) -> tuple[str, str]:
        return f"next token of the {result['split']} text", "validation"

    @classmethod
    def seed_documents(cls, results: Mapping[int, Self]) -> dict[str, Any]:
        return {
            "perplexities": {str(seed): r.perplexity for seed, r in results.items()},
            "accuracies": {str(seed): r.accuracy for seed, r in results.items()},
        }

    @classmethod
    def seed_rows(cls, results: Mapping[int, Self], mean: str, command: Command) -> dict[str, str]:
        first = next(iter(results.values()))
        return {
            "accuracy": mean,
            "": first.meaning,
            "perplexity": ", ".join(f"{s}: {r.perplexity:.2f}" for s, r in results.items()),
            "cost": f"{sum(r.seconds for r in results.values()):.1f} s",
            "run": str(first.run.parent),
            "next": command(rival=True, seeds=",".join(map(str, results))),
        }
