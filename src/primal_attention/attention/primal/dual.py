"""The dual view of a primal layer: its induced kernel and its KSVD problem."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

from ...distributed import WHOLE
from ...kernels import reference
from ...kernels.anchors import anchor_rows
from ...kernels.dispatch import Maps
from ...kernels.reference import hide, hide_features
from ...kernels.scan import running_mean
from ...theory.factors import KernelFactors
from ...theory.features import FeatureMap
from ...theory.objective import Positions, check_positions
from ...theory.precision import widen
from ...theory.problem import KSVDProblem
from ..base import Streaming
from ..inputs import Sequences
from .options import AnchorRule, Weights


class DualView(Streaming):
    """What a primal layer can tell about its kernel."""

    rank: int
    weights: Weights
    anchors: int | None
    anchor_rule: AnchorRule
    feature_map: FeatureMap
    w_e: nn.Parameter
    w_r: nn.Parameter
    sqrt_lambda: nn.Parameter
    dual_weight: nn.Parameter

    anchor_points: nn.Parameter | None

    @property
    def anchor_source(self) -> str | Tensor:
        """Where anchors come from: a rule, or points that are learned (n, d)."""
        return self.anchor_rule if self.anchor_points is None else self.anchor_points

    @abstractmethod
    def maps(self, dtype: torch.dtype) -> Maps:
        """The layer's linear maps in the type of the computation."""

    def factors(
        self, query: Tensor, key: Tensor | None = None, key_padding_mask: Tensor | None = None
    ) -> KernelFactors:
        """The induced kernel K = A B^T (B, h, N, M) without forming it: A (B, h, N, m) and
        B (B, h, M, m); ignored positions have zero rows."""
        call, _ = self._arrange(query, key, None, key_padding_mask)
        if self.causal and self.weights == "tied":
            raise ValueError(
                "the kernel of a causal tied layer is a triangle, not a product of factors; "
                "expected a layer that is not causal (or need_weights=True, which forms it)"
            )
        return self._factors(call)

    def ksvd_problem(
        self, query: Tensor, key: Tensor | None = None, key_padding_mask: Tensor | None = None
    ) -> KSVDProblem:
        """The KSVD problem (6) of this layer on given sequences, with its current variables, per
        sample and head: shapes (B, h, ...).

        Tied weights with positive features divide e by the row sums D_q of the kernel and r by its
        column sums D_k. That is one problem, of the kernel `D_q^{-1/2} K D_k^{-1/2}`: its weights
        are those of (14), its scores are `c D_q^{1/2} e` and `c D_k^{1/2} r`, where c = 1 / length.
        Its largest singular value is 1.
        """
        call, _ = self._arrange(query, key, None, key_padding_mask)
        if self.weights == "tied" and self.causal:
            raise ValueError(
                "a tied layer that is causal is not one KSVD problem; expected causal=False"
            )
        phi_q, phi_k = self._both_features(call)
        valid = None if call.ignore is None else ~call.ignore.unsqueeze(1)
        if self.weights == "tied":
            scale = 1.0 / WHOLE.count(call.y, call.ignore).clamp(min=1).to(phi_k.dtype)
            dual = reference.duals(hide(call.y, call.ignore), self.dual_weight, self.num_heads)
            key_phi = torch.stack(self._both_features(call._replace(x=call.y, is_self=True)), dim=1)
            w_e, w_r = reference.tied_weights(key_phi, dual, scale).unbind(1)
            if self.feature_map.positive:
                sums = key_phi.sum(-2, keepdim=True)  # (B, z, h, 1, m)
                phi_q = _normalised(phi_q, sums[:, 1])
                phi_k = _normalised(phi_k, sums[:, 0])
        else:
            w_e, w_r = self.w_e.unsqueeze(0), self.w_r.unsqueeze(0)
        return KSVDProblem(
            phi_q, phi_k, w_e, w_r, self.sqrt_lambda.unsqueeze(0), f=self._anchor_rows(call),
            valid_q=valid if call.is_self else None, valid_k=valid,
        )  # fmt: skip

    @torch.no_grad()
    def init_ksvd_(
        self,
        query: Tensor,
        key_padding_mask: Tensor | None = None,
        *,
        key: Tensor | None = None,
        positions: Positions = "mean",
    ) -> None:
        """Start at the exact KSVD of one sequence: J = 0 and the KKT conditions hold on it.

        key (B, M, d): what is asked in cross-attention, and what the mask is of. With free weights
        a batch counts as one long sequence: J is zero on it as a whole, on its samples only on
        average. Data-dependent weights expect a batch of one. `positions` is how Lambda will be
        trained, as in `ksvd_loss`.

        W_e = Phi_k^T H_r, W_r = Phi_q^T H_e, Lambda = Sigma^{-1} (14), of the kernel between all
        valid positions of the batch. With means over N queries and M keys, (11) is that of
        Phi_q / sqrt(N) and Phi_k / sqrt(M), and Lambda = sqrt(N M) Sigma^{-1}. A factor may move
        from W_r to W_e: with (N / M)^{1/4} (14) holds for the residuals' H_e = e Lambda / N and
        H_r = r Lambda / M too.
        """
        call, _ = self._arrange(query, key, None, key_padding_mask)
        check_positions(positions)
        if self.weights == "tied":
            raise ValueError(
                "tied weights satisfy the first two lines of (14) by construction and have no W_e, "
                'W_r to set; expected weights="data" or "free"'
            )
        if self.weights == "data" and len(call.x) != 1:
            raise ValueError(
                f'the batch holds {len(call.x)} sequences; weights="data" has another F_X in each, '
                "so one solution for all does not exist: expected a batch of one, e.g. x[:1]"
            )
        phi_q, phi_k = self._both_features(call)
        f = self._anchor_rows(call)
        if f is not None:
            f = f.to(phi_q.dtype)
            phi_q, phi_k = phi_q @ f.mT, phi_k @ f.mT  # (B, h, N, n)
        a, b = (phi.transpose(0, 1).flatten(1, 2) for phi in (phi_q, phi_k))  # (h, B * N, n)
        kernel = KernelFactors(a, b)
        left, sigma, right = kernel.svd(min(self.rank, kernel.max_rank))
        smallest = sigma[:, -1:].amin() if sigma.shape[-1] == self.rank else sigma.new_zeros(())
        if not bool(smallest > torch.finfo(sigma.dtype).eps * len(a[0]) * sigma.amax()):
            raise ValueError(
                f"the induced kernel of this batch has fewer than rank = {self.rank} non-zero "
                f"singular values; expected rank <= head_dim = {self.head_dim} and enough positions"
            )
        queries = keys = sigma.new_ones(())
        if positions == "mean":
            keys = WHOLE.count(call.y, call.ignore).sum().to(sigma.dtype)
            queries = keys if call.is_self else WHOLE.count(call.x, None).sum().to(sigma.dtype)
        tilt = (queries / keys) ** 0.25
        self.w_e.copy_(b.mT @ right * tilt)
        self.w_r.copy_(a.mT @ left / tilt)
        self.sqrt_lambda.copy_(((queries * keys).sqrt() / sigma).sqrt())

    def dense_kernel(self, call: Sequences) -> Tensor:
        """The induced kernel K (B, h, N, M) of a checked call, formed: quadratic, for inspection.

        Causal tied layers sum over j <= i: their kernel is the lower triangle.
        """
        dense = self._factors(call).dense()
        return dense.tril() if self.causal and self.weights == "tied" else dense

    def _factors(self, call: Sequences) -> KernelFactors:
        phi_q, phi_k = self._both_features(call)
        if self.weights == "tied" and self.feature_map.positive:  # rows are divided by their sums
            sums = phi_k.cumsum(-2) if self.causal else phi_k.sum(-2, keepdim=True)
            phi_q = phi_q * reference.inverse_positive((phi_q * sums).sum(-1, keepdim=True))
        if call.rotation is not None:
            phi_q, phi_k = call.rotation.turn(phi_q), call.rotation.turn(phi_k)
        return KernelFactors.from_features(phi_q, phi_k, self._anchor_rows(call))

    def _both_features(self, call: Sequences) -> tuple[Tensor, Tensor]:
        """phi_q of x and phi_k of y, (B, h, N, m) and (B, h, M, m), zero where ignored; scaled by
        D^{-1/2} where Remark 4.1 scales the scores."""
        dtype = self.in_proj_weight.dtype
        maps = self.maps(dtype)
        x, y = call.x.to(dtype), call.y.to(dtype)
        if self.causal and self.weights == "free":
            state = self.init_state(x.shape[0])
            x, _, _ = running_mean(x, call.ignore, state.sums, state.seen)
            y = x

        def both(rows: Tensor, ignore: Tensor | None) -> Tensor:
            rows = hide(rows, ignore)
            phi = reference.features(rows, maps.w_in, maps.b_in, self.feature_map)
            return hide_features(phi, ignore)

        at_x = both(x, call.ignore if call.is_self else None)
        at_y = at_x if call.is_self else both(y, call.ignore)
        phi_q, phi_k = at_x[:, 0], at_y[:, 1]
        if self.feature_map.positive and self.weights != "tied":
            key_sum = widen(phi_k).cumsum(-2) if self.causal else widen(phi_k).sum(-2)
            phi_q, phi_k = (
                phi * reference.inverse_positive(reference.normaliser(at, key_sum))[:, 0].sqrt()
                for phi, at in ((phi_q, at_x), (phi_k, at_y))
            )
        return phi_q, phi_k

    def _anchor_rows(self, call: Sequences) -> Tensor | None:
        """F_X (B, h, n, p), or None where it is the identity."""
        if self.anchors is None:
            return None
        _, rows = anchor_rows(call.y, call.ignore, self.anchors, self.anchor_source)
        heads: Tensor = rows.unflatten(-1, (self.num_heads, self.head_dim))  # (B, n, h, p)
        return heads.transpose(1, 2)


def _normalised(phi: Tensor, sums: Tensor) -> Tensor:
    """`D^{-1/2} phi`, where D is the sum of a point's kernel with the other side."""
    return phi * reference.inverse_positive((phi * sums).sum(-1, keepdim=True)).sqrt()
