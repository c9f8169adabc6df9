"""Which attentions to convert: each is tried beside those that are chosen already."""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from .planning import Measured, Together

Try = Callable[[Sequence[str]], Together]  # the attentions of these names, and no others


def in_turn(found: Mapping[str, Measured], together: Try) -> Iterator[tuple[str, Together]]:
    """Attentions in the order in which they are converted, each the one that adds least divergence
    for each FLOP that it saves to those before it; with what all of them up to this one give.
    What saves nothing is left out.

    Errors grow on the way through the model, so what an attention added beside fewer others is
    taken as a bound from below: it is tried again only when it leads.
    """
    waiting = [
        (each.divergence / each.saved, name, 0) for name, each in found.items() if each.saved > 0
    ]
    heapq.heapify(waiting)
    known = {name: Together(each.agreement, each.divergence) for name, each in found.items()}
    chosen: list[str] = []
    so_far = 0.0
    while waiting:
        _, name, beside = heapq.heappop(waiting)
        if beside < len(chosen):
            known[name] = together([*chosen, name])
            added = (known[name].divergence - so_far) / found[name].saved
            heapq.heappush(waiting, (added, name, len(chosen)))
        else:
            chosen.append(name)
            so_far = known[name].divergence
            yield name, known[name]


@dataclass(frozen=True)
class Choice:
    """How far to go: a budget of FLOPs, a quality, a count, or None of them."""

    budget: str | float | None = None
    quality: float | None = None
    count: int | None = None

    def __post_init__(self) -> None:
        given = (self.budget, self.quality, self.count)
        if sum(each is not None for each in given) > 1:
            raise ValueError(
                f"budget, quality and count are {self.budget}, {self.quality} and {self.count}; "
                "expected one of them"
            )
        if self.budget is not None:
            _factor(self.budget)
        if self.quality is not None and not (_is_number(self.quality) and 0 < self.quality < 1):
            raise ValueError(
                f"quality is {self.quality!r}; expected a share between 0 and 1, such as 0.99"
            )

    def __bool__(self) -> bool:
        return (self.budget, self.quality, self.count) != (None, None, None)

    def expect_possible(self, saved: Sequence[int], total: int) -> None:
        """Refuse what no measurement can give. saved: FLOPs of every attention that can be chosen;
        total: of all attentions as they are."""
        useful = [each for each in saved if each > 0]
        if not useful:
            raise ValueError(
                f"none of {len(saved)} attentions gets cheaper by a conversion at this length; "
                "expected a greater length"
            )
        if self.count is not None:
            whole = isinstance(self.count, int) and not isinstance(self.count, bool)
            if not whole or not 1 <= self.count <= len(useful):
                raise ValueError(
                    f"count is {self.count!r}; expected an integer from 1 to {len(useful)}, the "
                    "attentions that a conversion makes cheaper at this length"
                )
        if self.budget is not None:
            factor, least = _factor(self.budget), total - sum(useful)
            if least > total / factor:
                raise ValueError(
                    f"all {len(saved)} attentions together save a factor of {total / least:.2f}; "
                    f"expected a budget up to that, not {factor:g}x (or a greater length)"
                )

    def __call__(
        self, found: Mapping[str, Measured], total: int, together: Try
    ) -> dict[str, Together]:
        """The names that are chosen, in turn, each with what all up to it give together. total:
        FLOPs of all attentions as they are."""
        if self.budget is not None:
            return _within_budget(found, total, _factor(self.budget), together)
        if self.quality is not None:
            return _within_quality(found, self.quality, together)
        return dict(islice(in_turn(found, together), self.count))


def _within_budget(
    found: Mapping[str, Measured], total: int, factor: float, together: Try
) -> dict[str, Together]:
    chosen: dict[str, Together] = {}
    left = total
    for name, reached in in_turn(found, together):
        chosen[name] = reached
        left -= found[name].saved
        if left <= total / factor:
            break
    return chosen


def _within_quality(
    found: Mapping[str, Measured], quality: float, together: Try
) -> dict[str, Together]:
    chosen: dict[str, Together] = {}
    best = 0.0
    for name, reached in in_turn(found, together):
        best = max(best, reached.agreement)
        if reached.agreement < quality:
            break
        chosen[name] = reached
    if not chosen:
        raise ValueError(
            f"no attention can be converted at quality {quality}; the cheapest leaves {best:.4f}"
        )
    return chosen


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _factor(budget: str | float) -> float:
    text = str(budget).strip().lower()
    if not re.fullmatch(r"\d+(\.\d+)?x?", text) or float(text.rstrip("x")) <= 1:
        raise ValueError(f'budget is {budget!r}; expected a factor above 1, such as "2x"')
    return float(text.rstrip("x"))
