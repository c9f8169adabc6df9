"""From a split to examples: statistics and the greatest length come from the training part."""

from __future__ import annotations

from dataclasses import dataclass

from .examples import Settings
from .series import Normaliser, SeriesData, SeriesSet


@dataclass(frozen=True)
class SeriesReader:
    """Time series: normalised, longer ones cut."""

    normaliser: Normaliser | None
    shape: dict[str, int]

    @classmethod
    def fit(cls, train: SeriesSet, settings: Settings) -> SeriesReader:
        if settings.batching == "fixed" or settings.augment != "none" or settings.mixup:
            raise ValueError(
                f"batching is {settings.batching!r}, augment {settings.augment!r} and mixup "
                f"{settings.mixup}; expected for time series 'random' or 'bucket', 'none' and 0"
            )
        longest = int(train.lengths.max())
        most = longest if settings.max_length is None else settings.max_length
        shape = {"classes": len(train.classes), "channels": train.channels, "max_length": most}
        return cls(Normaliser.fit(train) if settings.normalise == "channel" else None, shape)

    def __call__(self, part: SeriesSet, *, training: bool = False) -> SeriesData:
        normalised = part if self.normaliser is None else self.normaliser.apply(part)
        return SeriesData(normalised, max_length=self.shape["max_length"])
