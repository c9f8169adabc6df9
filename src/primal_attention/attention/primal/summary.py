"""The context of a primal layer, summed up: the weights (14) of tied layers are such sums."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import nullcontext

import torch
from torch import Tensor

from ...distributed import WHOLE, current_shards
from ...kernels import reference
from ...kernels.anchors import anchor_weights
from ...kernels.dispatch import Maps, autocast_type
from ...kernels.reference import hide, hide_features
from ...theory.precision import widen, without_autocast
from ..inputs import Sequences
from ..summary import KeptSums, Summary, expect_summary
from .dual import DualView


class SummarisedContext(DualView):
    """`summarise` and `attend` of a primal layer. With tied weights a context is

        sum_j phi_q(y_j) (V_e y_j)^T,    sum_j phi_k(y_j) (V_r y_j)^T,    and its length:

    2 h m s + 1 numbers, one more column with a positive feature map. With weights "data" it is
    `F_Y^T W_e` and `F_Y^T W_r`, which do not add up, since anchors are picked from the whole
    context; with "free" ones nothing but the normaliser of Remark 4.1.
    """

    summary = "constant"

    def _summarise(self, call: Sequences, count: Tensor) -> KeptSums:
        if not current_shards().whole:
            raise ValueError("a sharded sequence cannot be summarised; expected a whole one")
        y, ignore = call.y, call.ignore
        dtype = autocast_type(y) or y.dtype
        with nullcontext() if dtype == y.dtype else without_autocast(y.device):
            y, maps = y.to(dtype), self.maps(dtype)
            positive, sums = self.feature_map.positive, []
            if self.weights == "tied":
                phi = hide_features(self._features(y, ignore, maps), ignore)
                dual = reference.duals(hide(y, ignore), self.dual_weight.to(dtype), self.num_heads)
                wide = torch.promote_types(dtype, torch.float32)
                sums.append(reference.causal_tied_sums(phi, dual, positive, wide))
            else:
                if self.anchors is not None:
                    weights = self.projections(dtype)
                    source = self.anchor_source
                    sums.append(anchor_weights(y, ignore, weights, source, WHOLE, eager=False)[1])
                if positive:
                    phi = hide_features(self._features(y, ignore, maps), ignore)
                    sums.append(widen(phi[:, 1]).sum(-2))  # (B, h, m)
        return KeptSums(count, call.batched, tuple(sums), adds=self.weights != "data")

    def _attend_to(self, call: Sequences, summary: Summary) -> Tensor:
        kept = expect_summary(summary, KeptSums, len(call.x), call.batched)
        x = call.x
        dtype = autocast_type(x) or x.dtype
        with nullcontext() if dtype == x.dtype else without_autocast(x.device):
            maps = self.maps(dtype)
            phi = self._features(x.to(dtype), None, maps)
            scores = self._scores_by(phi, kept)
            dropout = self.dropout if self.training else 0.0
            return reference.output(scores, None, maps.w_out, maps.b_out, dropout)

    def _scores_by(self, phi: Tensor, kept: KeptSums) -> Tensor:
        """e and r (B, z, h, N, s) of queries with features phi, by a summary."""
        positive = self.feature_map.positive
        if self.weights == "tied":
            (sums,) = kept.sums
            scale = 1.0 / kept.count.to(sums.dtype)
            sums = sums * torch.where(kept.count > 0, scale, 0.0)[:, None, None, None, None]
            weights, total = sums[..., : self.rank].flip(1), sums[..., -1] if positive else None
            return reference.scores(phi, weights, None, None, total)
        rest = list(kept.sums)
        weights = rest.pop(0).mT if self.anchors is not None else self.projections(phi.dtype).mT
        weights = weights if self.anchors is not None else weights[None]
        return reference.scores(phi, weights, None, rest.pop(0) if positive else None)

    @abstractmethod
    def projections(self, dtype: torch.dtype) -> Tensor:
        """The parameters W_e and W_r, transposed: (z, h, s, n)."""

    @abstractmethod
    def _features(self, x: Tensor, ignore: Tensor | None, maps: Maps) -> Tensor:
        """phi_q and phi_k of every row of x (B, N, d): (B, z, h, N, m)."""
