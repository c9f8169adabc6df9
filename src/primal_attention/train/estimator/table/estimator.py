"""What the classifier and the regressor of tables share: fit, absorb, forget, files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ....attention.summary import Summary
from ....models.table import TableNet, TableNets, loss
from ....models.table_context import from_tensors, subtracted, sums_of, to_tensors
from ....names import check_choice
from ....tasks.table.columns import Columns
from ....tasks.table.rows import MOST, Episode, Episodes, Rows, judgement
from ..alone import Steps
from ..base import SavedEstimator, prefixed, without_prefix
from ..parameters import check_integer, plain, seed_of, seeds_of
from .reading import read_columns

ROWS = 8192  # that are answered at a time
FEWEST = 8  # rows that choose the weights


class TableEstimator(SavedEstimator):
    """See `PrimalTableClassifier`."""

    net_: TableNet | TableNets
    columns_: Columns
    summary_: list[Summary]
    _table: Rows | None

    def __init__(
        self,
        *,
        context: str = "set",
        attention: str = "primal",
        options: Mapping[str, Any] | None = None,
        width: int = 64,
        heads: int = 4,
        layers: int = 2,
        feedforward: int = 128,
        dropout: float = 0.1,
        frequencies: int = 8,
        categorical: str | Sequence[int | str] = "auto",
        keep_table: bool = False,
        networks: int = 4,
        lr: float = 2e-3,
        weight_decay: float = 0.05,
        steps: int = 150,
        epochs: int = 12,
        batch_size: int = 256,
        max_context: int = 1024,
        validation_fraction: float = 0.15,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.context = context
        self.attention = attention
        self.options = options
        self.width = width
        self.heads = heads
        self.layers = layers
        self.feedforward = feedforward
        self.dropout = dropout
        self.frequencies = frequencies
        self.categorical = categorical
        self.keep_table = keep_table
        self.networks = networks
        self.lr = lr
        self.weight_decay = weight_decay
        self.steps = steps
        self.epochs = epochs
        self.batch_size = batch_size
        self.max_context = max_context
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.verbose = verbose

    # -- the context -------------------------------------------------------------------------------

    def absorb(self, X: Any, y: Any, *, decay: float = 1.0) -> Self:
        """Learn from further labelled rows, without a step of training: they join the context.

        What was there weighs `decay` times as much from now on. With context="additive" the result
        is that of all rows at once, exactly. With "set" the new rows see those before them, which
        stay as they were; with keep_table=True all are encoded again.
        """
        check_is_fitted(self)
        rows = self._rows(X, y)
        if self._table is not None:
            if decay != 1.0:
                raise ValueError(f"decay is {decay}; expected 1 with keep_table=True")
            self._table = self._table.joined(rows)
            self.summary_ = self._summarise(self._table)
        else:
            before = self.summary_
            if decay != 1.0:
                before = [sums_of(kept).faded(decay) for kept in before]
            self.summary_ = self._summarise(rows, before)
        return self

    def forget(self, X: Any, y: Any) -> Self:
        """Take labelled rows out of the context: exact with context="additive", also for rows of
        `fit`, whose traces then remain in the trained weights alone; with "set" it needs
        keep_table=True."""
        check_is_fitted(self)
        rows = self._rows(X, y)
        if len(rows) >= self.context_rows_:
            raise ValueError(
                f"{len(rows)} rows are to be forgotten of {self.context_rows_:g}; expected fewer"
            )
        if self._table is not None:
            self._table = self._table[_others(self._table, rows)]
            self.summary_ = self._summarise(self._table)
        elif self.net_.context == "set":
            raise ValueError(
                'context="set" cannot forget: rows are mixed with each other; expected '
                'context="additive", or keep_table=True'
            )
        else:
            self.summary_ = subtracted(self.summary_, self._summarise(rows))
        return self

    @property
    def context_rows_(self) -> float:
        """How many rows the context has; fewer than were absorbed where it faded."""
        return float(self.summary_[0].count[0])

    # -- parts -------------------------------------------------------------------------------------

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags

    def _labels(self, y: Any, X: Any) -> Tensor:
        """Labels of rows that come after `fit`."""
        raise NotImplementedError(f"{type(self).__name__} does not define _labels")

    def _rows(self, X: Any, y: Any) -> Rows:
        numbers, codes = self._inputs(X)
        return Rows(numbers, codes, self._labels(y, numbers))

    def _inputs(self, X: Any) -> tuple[Tensor, Tensor]:
        columns = read_columns(self, X, self.categorical, fit=False)
        numbers, codes = self.columns_(self.columns_.as_fitted(columns))
        return torch.from_numpy(numbers), torch.from_numpy(codes)

    def _fit(self, X: Any, y: Any) -> None:
        """Columns and labels are read; train and sum up the table."""
        given = {name: plain(value) for name, value in self.get_params().items()}
        check_choice("context", given["context"], ("set", "additive"))
        for name in ("networks", "steps", "batch_size", "max_context", "layers", "frequencies"):
            check_integer(name, given[name], 1)
        check_integer("epochs", given["epochs"], 0)
        columns = read_columns(self, X, self.categorical, fit=True)
        labels = self._fit_labels(y, columns[0].values)
        if len(labels) < 2:
            raise ValueError(f"X has {len(labels)} sample, 1 row; expected at least 2")
        self.columns_ = Columns.of(columns)
        numbers, codes = (torch.from_numpy(part) for part in self.columns_(columns))
        table = Rows(numbers, codes, labels)
        passes = -(-len(table) // given["batch_size"]) * given["epochs"]
        steps, nets = max(given["steps"], passes), []
        for seed in seeds_of(seed_of(self.random_state), given["networks"]):
            training = Steps(
                steps, given["lr"], given["weight_decay"], seed=seed, verbose=bool(self.verbose)
            )
            known, held_out = self._divide(table.to(torch.float32), seed)
            nets.append(self._trained(training, known, held_out))
        self.net_ = _joined([net.double() for net, _ in nets])
        self.history_ = nets[0][1]
        self.n_iter_ = len(self.history_)
        self._table = table if self.keep_table else None
        self.summary_ = self._summarise(table)

    def _trained(
        self, training: Steps, known: Rows, held_out: Rows | None
    ) -> tuple[TableNet, list[float]]:
        """A network and the loss of every step."""
        episodes = Episodes(known, plain(self.batch_size), plain(self.max_context))
        judged = None if held_out is None else judgement(known, held_out)
        return training.run(
            self._net,
            lambda net, chosen: _loss(net, episodes.draw(chosen)),
            None if judged is None else lambda net: float(_loss(net, judged)),
        )

    def _divide(self, table: Rows, seed: int) -> tuple[Rows, Rows | None]:
        """Rows to learn from, and those that choose the weights; none of a tiny table."""
        fraction = self.validation_fraction
        if not 0.0 <= fraction < 1.0:
            raise ValueError(f"validation_fraction is {fraction!r}; expected a number in [0, 1)")
        held = round(fraction * len(table))
        if held < FEWEST:
            return table, None
        order = torch.randperm(len(table), generator=torch.Generator().manual_seed(seed))
        return table[order[held:]], table[order[: min(held, MOST)]]

    def _fit_labels(self, y: Any, X: Any) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} does not define _fit_labels")

    @property
    def _classes(self) -> int | None:
        return None

    def _net(self) -> TableNet:
        return TableNet(
            numbers=self.columns_.numbers, categories=self.columns_.categories,
            classes=self._classes, context=self.context,  # type: ignore[arg-type]
            attention=self.attention, options=self.options, width=self.width, heads=self.heads,
            layers=self.layers, feedforward=self.feedforward, dropout=self.dropout,
            frequencies=self.frequencies,
        )  # fmt: skip

    @torch.no_grad()
    def _summarise(self, rows: Rows, before: Sequence[Summary] = ()) -> list[Summary]:
        return self.net_.summarise(*rows.parts, before=before)

    @torch.no_grad()
    def _answers(self, X: Any) -> Tensor:
        """The outputs of the network (rows, classes or 1)."""
        check_is_fitted(self)
        numbers, codes = self._inputs(X)
        parts = zip(numbers.split(ROWS), codes.split(ROWS), strict=True)
        return torch.cat([self.net_.answer(*part, self.summary_) for part in parts])

    def _content(self) -> dict[str, Any]:
        return {
            "columns": self.columns_.to_dict(),
            "history": self.history_,
            "steps": self.n_iter_,
            "table": self._table is not None,
            "networks": len(self.net_.members) if isinstance(self.net_, TableNets) else 1,
        }

    def _tensors(self) -> Mapping[str, Tensor]:
        found = prefixed("net", {n: _short(t) for n, t in self.net_.state_dict().items()})
        found |= prefixed("summary", to_tensors(self.summary_))
        if self._table is not None:
            names = ("numbers", "codes", "labels")
            found |= prefixed("table", dict(zip(names, self._table.parts, strict=True)))
        return found

    def _restore(self, content: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        self.columns_ = Columns.from_dict(content["columns"])
        self.history_, self.n_iter_ = content["history"], content["steps"]
        self.networks = content.get("networks", 1)  # earlier folders have one and do not say so
        self.net_ = _joined([self._net().double().eval() for _ in range(self.networks)])
        self.net_.load_state_dict(without_prefix("net", tensors))
        self.summary_ = from_tensors(self.net_, without_prefix("summary", tensors))
        table = without_prefix("table", tensors)
        self._table = Rows(table["numbers"], table["codes"], table["labels"]) if table else None


def _joined(nets: list[TableNet]) -> TableNet | TableNets:
    return nets[0] if len(nets) == 1 else TableNets(nets).eval()


def _short(tensor: Tensor) -> Tensor:
    """In half of the bytes where nothing is lost, as with weights that were trained so."""
    if tensor.dtype != torch.float64 or not torch.equal(tensor.float().double(), tensor):
        return tensor
    return tensor.float()


def _loss(net: TableNet, episode: Episode) -> Tensor:
    return loss(net(*episode[:-1]), episode.labels)


def _others(table: Rows, rows: Rows) -> Tensor:
    """The places in a table without one row for each of `rows`."""
    left: dict[bytes, int] = {}
    for key in _keys(rows):
        left[key] = left.get(key, 0) + 1
    kept = []
    for i, key in enumerate(_keys(table)):
        if left.get(key, 0):
            left[key] -= 1
        else:
            kept.append(i)
    if missing := sum(left.values()):
        raise ValueError(f"{missing} rows to be forgotten are not in the table; expected its rows")
    return torch.tensor(kept)


def _keys(rows: Rows) -> list[bytes]:
    parts = [part.numpy() for part in rows.parts]
    return [b"".join(part[i].tobytes() for part in parts) for i in range(len(rows))]
