"""Primal-Attention as a module with the calling convention of nn.MultiheadAttention."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from ...theory.factors import KernelFactors
from ...theory.features import FeatureMap, make_feature_map
from ...theory.ledger import Ledger
from ...theory.objective import Positions
from ...theory.precision import widen
from ...theory.problem import KSVDProblem
from ..base import Streaming
from ..cost import Terms
from ..masks import check_attention_mask
from ..registry import register
from . import dual
from .compute import Maps, attend
from .cost import primal_cost
from .options import AnchorRule, Weights, check_options
from .shards import current_shards
from .stream import PrimalState


@register(
    "primal", paper="Chen, Tao, Tonin, Suykens: Primal-Attention, NeurIPS 2023", cost="O(N p s)"
)
class PrimalAttention(Streaming):
    """Self- or cross-attention as an asymmetric kernel SVD in the primal: linear in the length.

    Per head (width p = embed_dim / num_heads), with features phi of queries and keys,

        e(x) = W_e|X^T phi_q(x)    r(x) = W_r|X^T phi_k(x)    o(x) = W_c [e(x); r(x)]        (9)

    then heads are concatenated and projected. The kinds of weights:

    - `"data"`: `W_e|X = F_X^T W_e` with F_X the head's slice of `anchors` rows of the sequence. Not
      permutation-equivariant: anchors are tied to positions.
    - `"free"`: `W_e|X = W_e`. Output i depends on x_i alone (with `causal=True`: on the running
      mean up to i), and not on the context in cross-attention: other layers must mix.
    - `"tied"`: the KKT conditions (14) as parameterisation, beyond the paper:
      `W_e|X = c sum_j phi_k(x_j) (V_r x_j)^T`, `W_r|X = c sum_i phi_q(x_i) (V_e x_i)^T` with
      c = 1 / length. Every position mixes with every other; permutation-equivariant.

    In training mode each forward records what `ksvd_loss` needs. `Lambda = diag(sqrt_lambda^2)`.
    Set `layer.fast = False` to use the plain differentiable operations everywhere, e.g. for second
    derivatives.

    Args:
        rank: s, number of directions.
        weights: the kind of weights, "data", "free" or "tied".
        anchors: number of rows in F_X, of data-dependent weights; None takes rank * rank_multi.
        rank_multi: anchors for each direction, where `anchors` is None.
        anchor_rule: "sample" takes evenly spaced valid rows as anchors, "mean" the means of equal
            segments.
        feature_map: phi; "cosine", "exp", or a `FeatureMap`.
        dropout: probability that a score of [e; r] is dropped in training; the objective sees all.
    """

    has_values = False
    fast: bool = True
    folded: Literal["scores", "features"] | None = None  # see fold.py
    folded_projections: Tensor
    folded_w_out: Tensor
    folded_b_out: Tensor

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        rank: int,
        weights: Weights = "data",
        anchors: int | None = None,
        rank_multi: int = 10,
        anchor_rule: AnchorRule = "sample",
        causal: bool = False,
        feature_map: str | FeatureMap = "cosine",
        bias: bool = True,
        dropout: float = 0.0,
        batch_first: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            embed_dim, num_heads, causal=causal, dropout=dropout, batch_first=batch_first
        )
        check_options(rank, weights, anchors, rank_multi, anchor_rule, causal)
        self.rank, self.weights, self.anchor_rule = rank, weights, anchor_rule
        self.anchors = (anchors or rank * rank_multi) if weights == "data" else None
        self.feature_map = make_feature_map(feature_map, self.head_dim, device=device, dtype=dtype)
        features = self.feature_map.output_dim
        if weights == "data" and features != self.head_dim:
            raise ValueError(
                f'the feature map has {features} features; weights="data" expects head_dim = '
                f"{self.head_dim}, the width of the rows in F_X"
            )

        def new(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(shape, device=device, dtype=dtype))

        def linear(inputs: int, outputs: int) -> nn.Linear:
            return nn.Linear(inputs, outputs, bias=bias, device=device, dtype=dtype)

        self.in_proj_weight = new(2 * embed_dim, embed_dim)  # W_q, then W_k
        self.in_proj_bias = new(2 * embed_dim) if bias else None
        if weights == "tied":
            self.dual_weight = new(2 * num_heads * rank, embed_dim)  # V_e, then V_r
        else:
            rows = self.anchors if self.anchors is not None else features
            self.w_e = new(num_heads, rows, rank)
            self.w_r = new(num_heads, rows, rank)
        self.sqrt_lambda = new(num_heads, rank)
        self.concat = linear(2 * rank, self.head_dim)  # W_c
        self.out_proj = linear(embed_dim, embed_dim)
        self.ledger = Ledger()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Xavier projections, orthogonal W_e and W_r per head, Lambda^{1/2} uniform in (0, 1)."""
        self._expect_unfolded("reset_parameters")
        for half in self.in_proj_weight.chunk(2):
            nn.init.xavier_uniform_(half)
        if self.weights == "tied":
            for half in self.dual_weight.chunk(2):
                nn.init.xavier_uniform_(half)
        else:
            for head in (*self.w_e, *self.w_r):
                _orthogonal_(head)
        nn.init.uniform_(self.sqrt_lambda)
        self.concat.reset_parameters()
        self.out_proj.reset_parameters()
        for bias in (self.in_proj_bias, self.out_proj.bias):
            if bias is not None:
                nn.init.zeros_(bias)

    # -- calls -----------------------------------------------------------------------------------

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = False,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from query (B, N, d) to key (B, M, d); returns the output (B, N, d) and, with
        need_weights, the induced kernel K (B, N, M), or (B, h, N, M) without the average.

        key_padding_mask (B, M): True or -inf marks keys to ignore. In self-attention ignored
        positions give zero rows; so do all queries of a sample without any valid key.
        """
        call, _ = self._arrange(query, key, value, key_padding_mask)
        check_attention_mask(
            attn_mask, is_causal, causal=self.causal, queries=call.x.shape[1], keys=call.y.shape[1]
        )
        out, _ = attend(self, call, None, record=self.training)
        if not need_weights:
            return call.restore(out), None
        if current_shards() is not None:
            raise ValueError("need_weights=True was asked of a sharded sequence; expected False")
        kernel = dual.dense_kernel(self, call)  # (B, h, N, M)
        kernel = kernel.mean(1) if average_attn_weights else kernel
        return call.restore(out), kernel if call.batched else kernel.squeeze(0)

    def init_state(self, batch_size: int) -> PrimalState:
        """The state of a stream before its first token; causal layers only."""
        self._expect_causal("init_state")
        like = widen(self.in_proj_weight.detach()[:0])  # sums over a long context: float32 at least
        seen = torch.zeros(batch_size, dtype=torch.long, device=like.device)
        features, positive = self.feature_map.output_dim, self.feature_map.positive
        if self.weights == "tied":
            sums = like.new_zeros(batch_size, 2, self.num_heads, features, self.rank + positive)
            return PrimalState(sums, seen, None)
        key_sum = like.new_zeros(batch_size, self.num_heads, features) if positive else None
        return PrimalState(like.new_zeros(batch_size, self.embed_dim), seen, key_sum)

    def prefill(
        self,
        x: Tensor,
        key_padding_mask: Tensor | None = None,
        state: PrimalState | None = None,
    ) -> tuple[Tensor, PrimalState]:
        """A causal forward over x that goes on from a state and returns the state after it."""
        self._expect_causal("prefill")
        call, _ = self._arrange(x, None, None, key_padding_mask)
        before = self.init_state(call.x.shape[0]) if state is None else state
        before.check_batch(call.x.shape[0])
        out, after = attend(self, call, before, record=False)
        if after is None:
            raise RuntimeError("a causal pass must return a state")
        return call.restore(out), after

    def cost(self, length: int, batch: int = 1) -> Terms:
        """What one call costs."""
        return primal_cost(self, length, batch)

    # -- the dual view ---------------------------------------------------------------------------

    def factors(
        self, query: Tensor, key: Tensor | None = None, key_padding_mask: Tensor | None = None
    ) -> KernelFactors:
        """The induced kernel K = A B^T (B, h, N, M) without forming it."""
        return dual.factors(self, self._arrange(query, key, None, key_padding_mask)[0])

    def ksvd_problem(
        self, query: Tensor, key: Tensor | None = None, key_padding_mask: Tensor | None = None
    ) -> KSVDProblem:
        """The KSVD problem (6) of this layer on given sequences, per sample and head."""
        self._expect_unfolded("ksvd_problem")
        return dual.problem(self, self._arrange(query, key, None, key_padding_mask)[0])

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
        """
        self._expect_unfolded("init_ksvd_")
        dual.init_ksvd_(self, self._arrange(query, key, None, key_padding_mask)[0], positions)

    # -- parts -----------------------------------------------------------------------------------

    def maps(self, dtype: torch.dtype) -> Maps:
        """The layer's linear maps in the type of the computation.

        W_c and the output projection are one linear map of the scores: w_out (d, 2h * s).
        """
        w_in = self.in_proj_weight.to(dtype)
        b_in = None if self.in_proj_bias is None else self.in_proj_bias.to(dtype)
        if self.folded:
            return Maps(w_in, b_in, self.folded_w_out.to(dtype), self.folded_b_out.to(dtype))
        self.expect_linear_parts()
        heads = (self.num_heads, self.head_dim)
        out = self.out_proj.weight.to(dtype).unflatten(1, heads)  # (d, h, p)
        concat = self.concat.weight.to(dtype)  # (p, 2s)
        w_out = (out @ concat).unflatten(2, (2, self.rank)).transpose(1, 2).flatten(1)
        b_out = w_out.new_zeros(self.embed_dim)
        if self.concat.bias is not None:
            b_out = out.sum(1) @ self.concat.bias.to(dtype) + self.out_proj.bias.to(dtype)
        return Maps(w_in, b_in, w_out, b_out)

    def projections(self, dtype: torch.dtype) -> Tensor:
        """The parameters W_e and W_r, transposed: (2, h, s, n)."""
        if self.folded:
            return self.folded_projections.to(dtype)
        return torch.stack([self.w_e, self.w_r]).to(dtype).mT

    def expect_linear_parts(self) -> None:
        """Refuse parts put in their place whose forward, never called, would do something else."""
        for name, part in (("concat", self.concat), ("out_proj", self.out_proj)):
            if not isinstance(part, nn.Linear):
                raise TypeError(f"{name} is a {type(part).__name__}; expected nn.Linear")

    def _expect_unfolded(self, name: str) -> None:
        if self.folded:
            raise RuntimeError(f"{name} needs W_e and W_r; expected a layer that is not folded")

    def extra_repr(self) -> str:
        kind = f"weights={self.weights!r}"
        if self.anchors is not None:
            kind += f", anchors={self.anchors}, anchor_rule={self.anchor_rule!r}"
        if self.folded:
            kind += f", folded={self.folded!r}"
        return (
            f"{self.embed_dim}, {self.num_heads}, rank={self.rank}, {kind}, causal={self.causal}, "
            f"dropout={self.dropout}"
        )


@torch.no_grad()
def _orthogonal_(matrix: Tensor) -> None:
    """nn.init.orthogonal_ in float32 or wider: there is no QR in half precision."""
    wide = torch.empty_like(matrix, dtype=torch.promote_types(matrix.dtype, torch.float32))
    matrix.copy_(nn.init.orthogonal_(wide))
