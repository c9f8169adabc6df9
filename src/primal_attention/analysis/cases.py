"""One case that a model can be asked about with some of its positions removed.

Removal is padding: a masked position is absent for the attentions and the pooling, so that what is
asked is a shorter sequence, not one with a made-up filling. A model of what comes next (one with a
method `without`) is asked after a shorter history. Images have no padding; there a removed part has
the mean colour of the image, and `exact` is False.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..adapters.converted import evaluation
from .sampling import logits_of

Masks = npt.NDArray[np.bool_]  # (m, units), True = removed
Units = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, eq=False)
class Case:
    """`inputs` of one case, and `units`: the positions that are removed together. `ask(masks)`
    gives probabilities (m, classes) of the case without the units that a row of masks marks.

    `answer`: logits (m, classes) of the case without hidden positions (m, N), where they do not
    come from a call of `model` with padding; then something must be left of the case.
    """

    model: nn.Module
    inputs: Any
    units: Units
    length: int
    exact: bool = True
    target: int | None = None  # the position that classes are read from; None: their mean
    answer: Callable[[Tensor], Tensor] | None = None

    @property
    def most(self) -> int:
        """Units that may be removed together."""
        count = len(self.units)
        whole = self.answer is not None and sum(map(len, self.units)) >= self.length
        return count - 1 if whole else count

    @torch.no_grad()
    def ask(self, masks: Masks, batch: int = 32) -> npt.NDArray[np.float64]:
        hidden = torch.zeros(len(masks), self.length, dtype=torch.bool)
        for number, unit in enumerate(self.units):
            hidden[:, list(unit)] |= torch.from_numpy(masks[:, number, None])
        found = []
        with evaluation(self.model):
            for part in hidden.split(batch):
                said = logits_of(self._call(part)) if self.answer is None else self.answer(part)
                found.append(said.double().softmax(-1).cpu())
        return torch.cat(found).numpy()

    def whole(self) -> Any:
        """The arguments that show the model all of the case."""
        if isinstance(self.inputs, Mapping):
            return dict(self.inputs)
        return tuple(one for one in self.inputs if one is not None)

    def _call(self, hidden: Tensor) -> Any:
        size = len(hidden)
        if isinstance(self.inputs, Mapping):
            first = next(v for v in self.inputs.values() if isinstance(v, Tensor))
            mask = self.inputs.get("attention_mask")
            mask = torch.ones(1, self.length, dtype=torch.long) if mask is None else mask
            given = {k: v.expand(size, *v.shape[1:]) for k, v in self.inputs.items()}
            kept = mask.to(first.device) * (~hidden).to(first.device, mask.dtype)
            return self.model(**given | {"attention_mask": kept})
        inputs, padding = self.inputs
        given = inputs.expand(size, *inputs.shape[1:])
        hidden = hidden.to(inputs.device)
        if not self.exact:
            return self.model(_greyed(given, hidden))
        if padding is not None:
            hidden = hidden | padding
        return self.model(given, hidden)


def case_of(
    model: nn.Module, inputs: Any, units: Sequence[Sequence[int]] | int | None = None
) -> Case:
    """A case from the arguments of a call: a tensor (1, N) or (1, N, C), with or without padding
    (1, N), a mapping as Hugging Face's classifiers take it, or an image (1, C, H, W). Of a model of
    what comes next: tokens (1, N), or types, times and perhaps next times (1, N); the class is what
    comes after the last of them.

    `units`: lists of positions; a number of equal parts; None: single positions (of an image: a
    grid of 8 x 8 parts). Positions that are padded, or in no unit, are never removed.
    """
    target: int | None = None
    given: Any
    without = getattr(model, "without", None)
    if callable(without):
        return _history(model, inputs, units, without)
    if isinstance(inputs, Mapping):
        ids = inputs.get("input_ids")
        if ids is None:
            raise ValueError(f"inputs has {', '.join(inputs)}; expected input_ids among them")
        mask = inputs.get("attention_mask")
        valid = torch.ones_like(ids[0], dtype=torch.bool) if mask is None else mask[0].bool()
        length, given, exact, target = int(ids.shape[1]), dict(inputs), True, 0
        size = len(ids)
    else:
        x, padding = (inputs, None) if isinstance(inputs, Tensor) else (*inputs, None)[:2]
        size, exact = len(x), x.dim() != 4
        given = (x, padding if exact else None)
        length = int(x.shape[1]) if exact else int(x.shape[2] * x.shape[3])
        valid = torch.ones(length, dtype=torch.bool)
        if exact and padding is not None:
            valid = ~padding[0]
        if not exact and units is None:
            units = _grid(int(x.shape[2]), int(x.shape[3]), 8)
    if size != 1:
        raise ValueError(f"inputs has {size} cases; expected one")
    return Case(model, given, units_of(valid, units, target), length, exact, target)


def units_of(
    valid: Tensor, units: Sequence[Sequence[int]] | int | None, target: int | None = None
) -> Units:
    """The units of a case whose valid positions (N,) are known; single ones leave the target."""
    places = valid.nonzero()[:, 0].tolist()
    if isinstance(units, int):
        if not 1 <= units <= len(places):
            raise ValueError(f"units is {units}; expected 1 to {len(places)}, the positions")
        units = [part.tolist() for part in np.array_split(np.array(places), units)]
    elif units is None:
        units = [[place] for place in places if place != target]
    chosen = tuple(tuple(int(i) for i in unit if valid[i]) for unit in units)
    chosen = tuple(unit for unit in chosen if unit)
    if not chosen:
        raise ValueError("there is no unit of valid positions; expected at least one")
    return chosen


def _history(model: nn.Module, inputs: Any, units: Any, without: Callable[..., Tensor]) -> Case:
    columns = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    shape = tuple(columns[0].shape)
    if len(shape) != 2 or shape[0] != 1 or shape[1] < 2:
        raise ValueError(f"the history has shape {shape}; expected (1, N) with N of at least 2")
    chosen = units_of(torch.ones(shape[1], dtype=torch.bool), units)
    device = columns[0].device
    return Case(
        model, columns, chosen, shape[1], target=shape[1] - 1,
        answer=lambda hidden: without(hidden.to(device), *columns),
    )  # fmt: skip


def word_units(text: bytes) -> list[tuple[int, ...]]:
    """Units for a model of bytes: a word each; what is between words is of no unit."""
    return [tuple(range(*one.span())) for one in re.finditer(rb"[\w'\x80-\xff]+", text)]


def _greyed(images: Tensor, hidden: Tensor) -> Tensor:
    """Removed pixels take the mean colour of the image."""
    grey = images.mean((-2, -1), keepdim=True)
    place = hidden.view(len(images), 1, *images.shape[2:])
    return torch.where(place, grey, images)


def _grid(height: int, width: int, parts: int) -> list[list[int]]:
    rows, columns = (np.array_split(np.arange(n), min(parts, n)) for n in (height, width))
    return [[int(i * width + j) for i in r for j in c] for r in rows for c in columns]
