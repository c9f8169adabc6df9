"""A second stage for any vector search: re-ranking the first candidates in the light of each other.

from primal_attention import Reranker

reranker = Reranker(random_state=0).fit(vectors, groups)
places = reranker.rank(queries, base, k=100)    # (queries, k), best first
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self, get_args, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...runs.extras import needs_extra

with needs_extra("train", "Reranker needs"):
    from sklearn.utils.validation import check_is_fitted, validate_data

from ...analysis.retrieval import Floats, Integers, expand_query, first_round, reciprocal_scores
from ...analysis.retrieval import unit as unit_rows
from ...models.rerank import RerankNet, list_loss
from ...names import check_choice
from .alone import Steps
from .base import SavedEstimator, prefixed, without_prefix
from .inputs import read_labels
from .parameters import check_integer, plain, seed_of

__all__ = ["Reranker"]

Method = Literal["attention", "first", "expand", "expand-base", "reciprocal"]
LISTS = 64  # that are scored at a time


class Reranker(SavedEstimator):
    """Re-ranks the first k of a vector search, by vectors alone.

    `fit` learns from vectors whose groups are known (classes, articles, places): two vectors of a
    group belong together. Groups of the base may be others.

    Parameters
    ----------
    list_size : candidates of a list in training.
    anchors : how many of the first candidates a list is described by, with the query.
    attention, options, width, heads, layers, feedforward, dropout : of the network.
    lr, weight_decay, steps, batch_size : of the training, `batch_size` lists a step.
    random_state : an integer for the same result every time, a numpy RandomState, or None.
    verbose : 1 shows a bar while the network is trained.

    Attributes
    ----------
    net_, history_, n_iter_ : the network, the loss of every step, and how many steps.
    """

    net_: RerankNet

    def __init__(
        self,
        *,
        list_size: int = 128,
        anchors: int = 64,
        attention: str = "primal",
        options: Mapping[str, Any] | None = None,
        width: int = 64,
        heads: int = 4,
        layers: int = 2,
        feedforward: int = 128,
        dropout: float = 0.1,
        lr: float = 1e-3,
        weight_decay: float = 0.01,
        steps: int = 300,
        batch_size: int = 16,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.list_size = list_size
        self.anchors = anchors
        self.attention = attention
        self.options = options
        self.width = width
        self.heads = heads
        self.layers = layers
        self.feedforward = feedforward
        self.dropout = dropout
        self.lr = lr
        self.weight_decay = weight_decay
        self.steps = steps
        self.batch_size = batch_size
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from vectors X (n, d) and the group of each, y (n,)."""
        given = {name: plain(value) for name, value in self.get_params().items()}
        for name in ("list_size", "steps", "batch_size", "anchors"):
            check_integer(name, given[name], 1)
        vectors = unit_rows(validate_data(self, X, dtype=np.float64))
        _, groups = read_labels(y, vectors, type(self).__name__)
        size = min(given["list_size"], len(vectors) - 1)
        places, _ = first_round(vectors, vectors, size, leave_out=np.arange(len(vectors)))
        relevant = groups[places] == groups[:, None]
        useful = np.flatnonzero(relevant.any(1) & ~relevant.all(1))
        if len(useful) == 0:
            useful = np.arange(len(vectors))  # nothing to learn: the first round stays
        lists = _Lists(
            torch.from_numpy(vectors).float(), torch.from_numpy(places),
            torch.from_numpy(relevant), torch.from_numpy(useful), given["batch_size"], self.anchors,
        )  # fmt: skip
        training = Steps(
            given["steps"], given["lr"], given["weight_decay"],
            seed=seed_of(self.random_state), verbose=bool(self.verbose),
        )  # fmt: skip
        net, self.history_ = training.run(self._net, lists)
        self.net_, self.n_iter_ = net.double(), training.steps
        return self

    @overload
    def rank(
        self, queries: Any, base: Any, k: int = 100, *, method: Method = "attention",
        return_scores: Literal[False] = False,
    ) -> Integers: ...  # fmt: skip

    @overload
    def rank(
        self, queries: Any, base: Any, k: int = 100, *, method: Method = "attention",
        return_scores: Literal[True],
    ) -> tuple[Integers, Floats]: ...  # fmt: skip

    def rank(
        self,
        queries: Any,
        base: Any,
        k: int = 100,
        *,
        method: Method = "attention",
        return_scores: bool = False,
    ) -> Integers | tuple[Integers, Floats]:
        """The first k of the base (n, d) for each query (q, d), in a better order: their places
        (q, k), best first, and with return_scores their scores.

        method: "attention" is what was learned; "first" leaves the order of the search; "expand" is
        query expansion in the list, "expand-base" searches the base with the expanded query, and
        "reciprocal" compares neighbourhoods in the list. These need no `fit`.
        """
        check_choice("method", method, get_args(Method))
        check_integer("k", plain(k), 1)
        asked, stored = (unit_rows(self._vectors(name, v)) for name, v in
                         (("queries", queries), ("base", base)))  # fmt: skip
        if asked.shape[1] != stored.shape[1]:
            raise ValueError(
                f"queries have {asked.shape[1]} columns and base {stored.shape[1]}; expected "
                "as many"
            )
        k = min(k, len(stored))
        if method == "expand-base":
            asked = expand_query(asked, stored)
        places, scores = first_round(asked, stored, k)
        if method == "expand":
            expanded = expand_query(asked, stored, top=min(10, k))
            scores = np.einsum("qd,qkd->qk", expanded, stored[places])
        elif method == "reciprocal":
            found = [reciprocal_scores(q, stored[p]) for q, p in zip(asked, places, strict=True)]
            scores = np.stack(found)
        elif method == "attention":
            check_is_fitted(self)
            scores = self._learned(asked, stored, places)
        order = np.argsort(-scores, axis=1, kind="stable")
        chosen = np.take_along_axis(places, order, 1)
        return (chosen, np.take_along_axis(scores, order, 1)) if return_scores else chosen

    # -- parts -------------------------------------------------------------------------------------

    @torch.no_grad()
    def _learned(self, asked: Floats, stored: Floats, places: Integers) -> Floats:
        parts = []
        for first in range(0, len(asked), LISTS):
            rows = torch.from_numpy(stored[places[first : first + LISTS]])
            query = torch.from_numpy(asked[first : first + LISTS])
            parts.append(self.net_(query, rows, rows[:, : self.net_.anchors - 1]))
        found: Floats = torch.cat(parts).numpy()
        return found

    def _vectors(self, name: str, vectors: Any) -> npt.NDArray[Any]:
        rows = np.asarray(vectors)
        if rows.ndim != 2 or rows.size == 0 or rows.dtype.kind not in "biuf":
            raise ValueError(
                f"{name} is {rows.shape} of {rows.dtype}; expected numbers (vectors, width)"
            )
        if not np.isfinite(rows).all():
            raise ValueError(f"{name} has a value that is NaN or infinite; expected finite ones")
        return rows

    def _net(self) -> RerankNet:
        return RerankNet(
            anchors=self.anchors, attention=self.attention, options=self.options, width=self.width,
            heads=self.heads, layers=self.layers, feedforward=self.feedforward,
            dropout=self.dropout,
        )  # fmt: skip

    def _content(self) -> dict[str, Any]:
        return {"history": self.history_, "steps": self.n_iter_}

    def _tensors(self) -> Mapping[str, Tensor]:
        return prefixed("net", self.net_.state_dict())

    def _restore(self, content: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        self.net_ = self._net().double().eval()
        self.net_.load_state_dict(without_prefix("net", tensors))
        self.history_, self.n_iter_ = content["history"], content["steps"]


class _Lists:
    """A step: lists of some vectors, whose candidates stand in random order."""

    def __init__(
        self,
        vectors: Tensor,
        places: Tensor,
        relevant: Tensor,
        useful: Tensor,
        batch: int,
        anchors: int,
    ) -> None:
        self.vectors, self.places, self.relevant = vectors, places, relevant
        self.useful, self.batch, self.anchors = useful, batch, anchors

    def __call__(self, net: RerankNet, chosen: torch.Generator) -> Tensor:
        picked = torch.randint(len(self.useful), (self.batch,), generator=chosen)
        asked = self.useful[picked]
        rows = self.vectors[self.places[asked]]  # (B, K, d)
        relevant = self.relevant[asked]
        if not relevant.any():
            return 0.0 * net.log_first
        scores = net(self.vectors[asked], rows, rows[:, : self.anchors - 1])
        return list_loss(scores, relevant)
