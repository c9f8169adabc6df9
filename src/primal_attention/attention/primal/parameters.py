"""The parameters of primal layers, how they start, and the state that a stream starts from."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ...theory.features import FeatureMap
from ...theory.ledger import Ledger
from ...theory.precision import widen
from .options import AnchorRule, Weights
from .readout import Readout
from .state import PrimalState


class PrimalParameters(Readout):
    """Base of the primal layers: h heads of width p, whose product need not be the width d."""

    embed_dim: int
    num_heads: int
    head_dim: int
    rank: int
    weights: Weights
    causal: bool
    dropout: float
    feature_map: FeatureMap
    anchors: int | None = None  # rows in F_X, of data-dependent weights
    anchor_rule: AnchorRule = "sample"
    anchor_points: nn.Parameter | None

    def _make_parameters(
        self, rows: int, bias: bool, device: torch.device | str | None, dtype: torch.dtype | None
    ) -> None:
        """rows: those of W_e and W_r, one for each anchor or each feature."""

        def new(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(shape, device=device, dtype=dtype))

        def linear(inputs: int, outputs: int) -> nn.Linear:
            return nn.Linear(inputs, outputs, bias=bias, device=device, dtype=dtype)

        heads, inner = self.num_heads, self.num_heads * self.head_dim
        self.in_proj_weight = new(2 * inner, self.embed_dim)  # W_q, then W_k
        self.in_proj_bias = new(2 * inner) if bias else None
        if self.weights == "tied":
            self.dual_weight = new(2 * heads * self.rank, self.embed_dim)  # V_e, then V_r
        else:
            self.w_e = new(heads, rows, self.rank)
            self.w_r = new(heads, rows, self.rank)
            if self.anchors is not None and self.anchor_rule == "learned":
                self.anchor_points = new(rows, self.embed_dim)
        self.sqrt_lambda = new(heads, self.rank)  # Lambda^{1/2}
        self.concat = linear(2 * self.rank, self.head_dim)  # W_c
        self.out_proj = linear(inner, self.embed_dim)
        self.ledger = Ledger()
        self._start_parameters()

    def reset_parameters(self) -> None:
        """Xavier projections, orthogonal W_e and W_r per head, Lambda^{1/2} uniform in (0, 1), and
        the start of the feature map. Tied weights with a positive map start with W_k = W_q: the
        kernel is symmetric and compares content from the first step; training parts the two."""
        self.feature_map.reset_parameters()
        self._start_parameters()

    def _start_parameters(self) -> None:
        """All but those of the feature map, which may be given with its own."""
        halves = list(self.in_proj_weight.chunk(2))
        if self.weights == "tied":
            halves += self.dual_weight.chunk(2)
        for half in halves:
            nn.init.xavier_uniform_(half)
        if self.weights == "tied" and self.feature_map.positive:
            queries, keys = self.in_proj_weight.detach().chunk(2)
            keys.copy_(queries)
        if self.weights != "tied":
            for head in (*self.w_e, *self.w_r):
                _orthogonal_(head)
        points = getattr(self, "anchor_points", None)
        if points is not None:
            nn.init.normal_(points)
        nn.init.uniform_(self.sqrt_lambda)
        self.concat.reset_parameters()
        self.out_proj.reset_parameters()
        for bias in (self.in_proj_bias, self.out_proj.bias):
            if bias is not None:
                nn.init.zeros_(bias)

    def _zero_state(self, batch_size: int, width: int) -> PrimalState:
        """The state before the first token; free weights keep a sum of rows of some width."""
        like = widen(self.in_proj_weight.detach()[:0])  # sums over a long context: float32 at least
        seen = torch.zeros(batch_size, dtype=torch.long, device=like.device)
        features, positive = self.feature_map.output_dim, self.feature_map.positive
        if self.weights == "tied":
            sums = like.new_zeros(batch_size, 2, self.num_heads, features, self.rank + positive)
            return PrimalState(sums, seen, None)
        key_sum = like.new_zeros(batch_size, self.num_heads, features) if positive else None
        return PrimalState(like.new_zeros(batch_size, width), seen, key_sum)


def parameter(layer: nn.Module, name: str) -> Any:
    """What getattr gives, a microsecond earlier: nn.Module looks everywhere else first."""
    found = layer._parameters.get(name)
    return getattr(layer, name) if found is None else found


def linear_parts(layer: PrimalParameters) -> tuple[nn.Linear, nn.Linear]:
    """W_c and the output projection; refuses a replaced part whose forward, never called, would do
    something else."""
    concat, out_proj = layer.concat, layer.out_proj
    for name, part in (("concat", concat), ("out_proj", out_proj)):
        if not isinstance(part, nn.Linear):
            raise TypeError(f"{name} is a {type(part).__name__}; expected nn.Linear")
    return concat, out_proj


@torch.no_grad()
def _orthogonal_(matrix: Tensor) -> None:
    """nn.init.orthogonal_ in float32 or wider: there is no QR in half precision."""
    matrix.copy_(nn.init.orthogonal_(torch.empty_like(widen(matrix))))
