"""From a split to examples: statistics and the greatest length come from the training part."""

from __future__ import annotations

from dataclasses import dataclass

from .examples import Settings
from .series import Normaliser, SeriesData, SeriesSet
from .tokens import PairData, TokenData, TokenSet


@dataclass(frozen=True)
class SeriesReader:
    """Time series: normalised, longer ones cut."""

    normaliser: Normaliser | None
    shape: dict[str, int]

    @classmethod
    def fit(cls, train: SeriesSet, settings: Settings) -> SeriesReader:
        longest = int(train.lengths.max())
        most = longest if settings.max_length is None else min(longest, settings.max_length)
        shape = {"classes": len(train.classes), "channels": train.channels, "max_length": most}
        return cls(Normaliser.fit(train) if settings.normalise == "channel" else None, shape)

    def __call__(self, part: SeriesSet, *, training: bool = False) -> SeriesData:
        normalised = part if self.normaliser is None else self.normaliser.apply(part)
        return SeriesData(normalised, max_length=self.shape["max_length"])


@dataclass(frozen=True)
class TokenReader:
    """Tokens, one sequence a case or two; longer ones are cut, `fixed` pads all to the longest."""

    shape: dict[str, int]
    fixed: bool

    @classmethod
    def fit(cls, train: TokenSet, settings: Settings) -> TokenReader:
        most = settings.max_length or int(train.lengths.max())
        shape = {
            "classes": len(train.classes),
            "vocabulary": train.vocabulary,
            "max_length": most,
            "pairs": train.sequences == 2,
        }
        return cls(shape, settings.batching == "fixed")

    def __call__(self, part: TokenSet, *, training: bool = False) -> TokenData:
        kind = PairData if self.shape["pairs"] else TokenData
        most = self.shape["max_length"]
        return kind(part, max_length=most, pad_to=most if self.fixed else None)
