"""Primal-Attention as a module with the calling convention of nn.MultiheadAttention.

To be read from top to bottom: options, calls, equation (9). The steps are those of
`kernels/reference.py` and `steps.py`; where `kernels/dispatch.py` says so, one fast pass takes
their place.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ...distributed import WHOLE, WholeSequence, current_shards
from ...kernels import decoding, dispatch, reference
from ...kernels.anchors import anchor_weights, sampled_count
from ...kernels.dispatch import Maps, Path, autocast_type, choose_path
from ...kernels.graphs import is_exporting
from ...kernels.reference import hide, hide_features
from ...kernels.scan import running_mean
from ...theory.entry import Entry
from ...theory.features import FeatureMap, make_feature_map
from ...theory.precision import widen, without_autocast
from ..cost import Terms
from ..inputs import Sequences
from ..masks import check_attention_mask
from ..registry import register
from ..rotation import Rotation
from .cost import primal_cost
from .native import attend_native, native_weights, triton_layer
from .options import AnchorRule, Weights, check_options, default_map
from .parameters import PrimalParameters, linear_parts
from .state import PrimalState
from .steps import causal_tied, objective_terms, output_map, valid_positions
from .summary import SummarisedContext


class Run(NamedTuple):
    """One call on its way through equation (9)."""

    call: Sequences  # in the type of the computation
    maps: Maps
    path: Path
    shards: WholeSequence
    dropout: float
    want_energy: bool

    @property
    def hidden(self) -> Tensor | None:
        """The ignored queries (B, N)."""
        return self.call.ignore if self.call.is_self else None

    def energy(self, scores: Tensor) -> Tensor | None:
        return reference.energy(scores) if self.want_energy else None


class Result(NamedTuple):
    out: Tensor  # (B, N, d)
    energy: Tensor | None  # (B, z, h, s): sums of squared e over queries, of squared r over keys
    tied: Tensor | None = None  # tied weights (B, z, ...), for the trace in J
    state: PrimalState | None = None


@register(
    "primal", paper="Chen, Tao, Tonin, Suykens: Primal-Attention, NeurIPS 2023", cost="O(N p s)"
)
class PrimalAttention(PrimalParameters, SummarisedContext):
    """Self- or cross-attention as an asymmetric kernel SVD in the primal: linear in the length.

    Per head (width p = embed_dim / num_heads), with features phi of queries and keys,

        e(x) = W_e|X^T phi_q(x)    r(x) = W_r|X^T phi_k(x)    o(x) = W_c [e(x); r(x)]        (9)

    then heads are concatenated and projected. The kinds of weights:

    - `"tied"`, the default: the KKT conditions (14) as parameterisation, beyond the paper:
      `W_e|X = c sum_j phi_k(x_j) (V_r x_j)^T`, `W_r|X = c sum_i phi_q(x_i) (V_e x_i)^T` with
      c = 1 / length. Every position mixes with every other; permutation-equivariant.
    - `"data"`, the paper's: `W_e|X = F_X^T W_e` with F_X the head's slice of `anchors` rows of the
      sequence. A position that is no anchor influences no other one (`coverage`), unless
      anchor_rule="mean". Not permutation-equivariant, since anchors are tied to positions, unless
      anchor_rule="learned".
    - `"free"`: `W_e|X = W_e`. Output i depends on x_i alone (with `causal=True`: on the running
      mean up to i), and not on the context in cross-attention: other layers must mix.

    In training mode each forward records what `ksvd_loss` needs. `Lambda = diag(sqrt_lambda^2)`.
    Set `layer.fast = False` to use the plain differentiable operations everywhere, e.g. for second
    derivatives.

    Args:
        rank: s, number of directions; None takes half the width of a head. One that is not below
            that width reduces nothing.
        weights: the kind of weights, "data", "free" or "tied".
        anchors: number of rows in F_X, of data-dependent weights; None takes rank * rank_multi.
        rank_multi: anchors for each direction, where `anchors` is None.
        anchor_rule: "sample" takes evenly spaced valid rows as anchors, "mean" the means of equal
            segments; "paper" rounds the places of "sample" down, as the published code does;
            "learned" takes means weighted by the likeness of every row to learned points.
        feature_map: phi; "cosine", "elu", "softmax", "exp", "exp-orthogonal", "gaussian",
            "inverse_quadratic", or a `FeatureMap`.
            None takes "elu" with tied weights, which can focus on a few positions, and "cosine",
            the paper's, with others.
        dropout: probability that a score of [e; r] is dropped in training; the objective sees all.
    """

    has_values = False
    has_rotation = True
    fast: bool = True
    compiled: ClassVar[bool] = True  # whether the compiled kernels know its parameters

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        rank: int | None = None,
        weights: Weights = "tied",
        anchors: int | None = None,
        rank_multi: int = 10,
        anchor_rule: AnchorRule = "sample",
        causal: bool = False,
        feature_map: str | FeatureMap | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        batch_first: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            embed_dim, num_heads, causal=causal, dropout=dropout, batch_first=batch_first
        )
        rank = max(1, self.head_dim // 2) if rank is None else rank
        check_options(rank, weights, anchors, rank_multi, anchor_rule, causal)
        self.rank, self.weights, self.anchor_rule = rank, weights, anchor_rule
        self.anchors = (anchors or rank * rank_multi) if weights == "data" else None
        self.feature_map = make_feature_map(
            default_map(weights) if feature_map is None else feature_map,
            self.head_dim,
            self.num_heads,
            device=device,
            dtype=dtype,
        )
        features = self.feature_map.output_dim
        if weights == "data" and features != self.head_dim:
            raise ValueError(
                f'the feature map has {features} features; weights="data" expects head_dim = '
                f"{self.head_dim}, the width of the rows in F_X"
            )
        self.anchor_points = None
        self._make_parameters(self.anchors or features, bias, device, dtype)

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
        *,
        rotation: Rotation | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from query (B, N, d) to key (B, M, d); returns the output (B, N, d) and, with
        need_weights, the induced kernel K (B, N, M), or (B, h, N, M) without the average.

        key_padding_mask (B, M): True or -inf marks keys to ignore. In self-attention ignored
        positions give zero rows; so do all queries of a sample without any valid key. rotation
        turns the features of tied weights by their times, in self-attention.
        """
        call, _ = self._arrange(query, key, value, key_padding_mask, rotation)
        shape = self._mask_shape(call)
        check_attention_mask(attn_mask, is_causal, causal=self.causal, shape=shape)
        out, _ = self._attend(call, None, record=self.training)
        if not need_weights:
            return call.restore(out), None
        if not current_shards().whole:
            raise ValueError("need_weights=True was asked of a sharded sequence; expected False")
        kernel = self.dense_kernel(call)  # (B, h, N, M)
        kernel = kernel.mean(1) if average_attn_weights else kernel
        return call.restore(out), kernel if call.batched else kernel.squeeze(0)

    def init_state(self, batch_size: int) -> PrimalState:
        """The state of a stream before its first token; causal layers only."""
        self._expect_causal("init_state")
        return self._zero_state(batch_size, self.embed_dim)

    def prefill(
        self,
        x: Tensor,
        key_padding_mask: Tensor | None = None,
        state: PrimalState | None = None,
        rotation: Rotation | None = None,
    ) -> tuple[Tensor, PrimalState]:
        """A causal forward over x that continues from a state and returns the state after it."""
        self._expect_causal("prefill")
        call, _ = self._arrange(x, None, None, key_padding_mask, rotation)
        before = self.init_state(call.x.shape[0]) if state is None else state
        before.check_batch(call.x.shape[0])
        out, after = self._attend(call, before, record=False)
        if after is None:
            raise RuntimeError("a causal pass must return a state")
        return call.restore(out), after

    def _rotated(self, call: Sequences, rotation: Rotation) -> Sequences:
        if self.weights != "tied":
            raise ValueError(
                f"a rotation was given with weights={self.weights!r}, whose kernel has no pairs of "
                'positions; expected weights="tied"'
            )
        return super()._rotated(call, rotation)

    def cost(self, length: int, batch: int = 1) -> Terms:
        """What one call costs."""
        return primal_cost(self, length, batch)

    def coverage(self, length: int) -> int:
        """How many of `length` positions can influence the output of another one. Tied weights and
        means of segments: all. Sampled anchors: the anchors, however long the sequence is. Free
        weights: none, unless a causal running mean carries all but the last. The normaliser of
        positive features (Remark 4.1) sums over all positions, and so reaches all, by a factor."""
        every = super().coverage(length)
        if self.weights == "tied" or self.causal or self.feature_map.positive:
            return every
        if self.anchors is None:
            return 0
        if self.anchor_rule in ("mean", "learned"):
            return every
        return min(every, sampled_count(length, self.anchors, self.anchor_rule))

    # -- equation (9) ----------------------------------------------------------------------------

    def _attend(
        self, call: Sequences, state: PrimalState | None, *, record: bool
    ) -> tuple[Tensor, PrimalState | None]:
        """The output (B, N, d) of a checked call, and in causal layers the state after it."""
        shards, cast = current_shards(), autocast_type(call.x)
        if not shards.whole and (state is not None or not call.is_self):
            raise ValueError("a sharded sequence expects self-attention without a state")
        native = native_weights(self, call, state, shards)
        if self.causal and state is None:
            state = self.init_state(call.x.shape[0])
        inference = not self.training and call.ignore is None and shards.whole
        dtype = cast or call.x.dtype
        path = choose_path(
            call.x, dtype, self.feature_map, fast=self.fast and call.rotation is None,
            decoding=self.causal and inference, native=native,
            triton=triton_layer(self) if call.is_self and shards.whole else None,
        )  # fmt: skip
        if path == "decoding" and state is not None:
            return self._decode(call.x, state)
        if dtype != call.x.dtype:
            x = call.x.to(dtype)
            call = call._replace(x=x, y=x if call.is_self else call.y.to(dtype))
        with nullcontext() if cast is None else without_autocast(call.x.device):
            dropout = self.dropout if self.training else 0.0
            record = record and not is_exporting()
            if path == "native":
                return self._native(call, state, dropout, record=record)
            run = Run(call, self.maps(dtype), path, shards, dropout, want_energy=record)
            attend = self._tied if self.weights == "tied" else self._fixed
            out, energy, tied, state = attend(run, state)
            if not call.is_self and call.ignore is not None:  # a sample without any valid key
                out = out.masked_fill(call.ignore.all(-1)[:, None, None], 0.0)
            if energy is not None:
                made = objective_terms(self, energy, tied, shards)
                count_r = valid_positions(call.y, call.ignore, shards)
                count_e = count_r if call.is_self else valid_positions(call.x, None, shards)
                out = self.ledger.record(out, made, count_e, count_r)
        return out, state

    def _native(
        self, call: Sequences, state: PrimalState | None, dropout: float, *, record: bool
    ) -> tuple[Tensor, PrimalState | None]:
        """By the compiled kernels, which make the terms of J as well."""
        made, state = attend_native(self, call, state, dropout, want_terms=record)
        if made.terms is None:
            return made.out, state
        count = valid_positions(call.x, call.ignore)
        if torch.compiler.is_compiling():
            return self.ledger.record(made.out, made.terms, count, count), state
        entry = Entry(made.terms, count, count, torch.is_grad_enabled(), made.square)
        self.ledger.append(entry)
        return made.out, state

    def _fixed(self, run: Run, state: PrimalState | None) -> Result:
        """With data-dependent weights `F_X^T W_e`, or free ones `W_e`, likewise W_r."""
        call, shards = run.call, run.shards
        weights = self.projections(call.x.dtype)  # (z, h, s, n)
        if self.anchors is not None:
            y, weights = anchor_weights(
                call.y, call.ignore, weights, self.anchor_source, shards,
                eager=run.path != "reference",
            )  # fmt: skip
            call = call._replace(x=y if call.is_self else call.x, y=y)
            return self._evaluate(run._replace(call=call), weights)
        if state is None:
            return self._evaluate(run, weights[None])
        # Causal: queries and keys are replaced by their running means (appendix, figure 3).
        x, ignore, dtype = call.x, call.ignore, state.sums.dtype
        before = shards.before(state.sums, lambda: hide(x, ignore).sum(1, dtype=dtype))
        seen = shards.before(state.seen, lambda: WHOLE.count(x, ignore))
        mean, sums, seen = running_mean(x, ignore, before, seen)
        run = run._replace(call=call._replace(x=mean, y=mean, is_self=True))
        return self._evaluate(run, weights[None], state=PrimalState(sums, seen, state.key_sum))

    def _tied(self, run: Run, state: PrimalState | None) -> Result:
        """With the weights (14) of the sequence itself, `W_e|X = c sum_j phi_k(x_j) (V_r x_j)^T`,
        `W_r|X = c sum_i phi_q(x_i) (V_e x_i)^T`; causal: with sums over j <= i."""
        call, maps, shards = run.call, run.maps, run.shards
        w_dual = self.dual_weight.to(call.y.dtype)
        if state is None:
            scale = 1.0 / shards.count(call.y, call.ignore).clamp(min=1).to(call.y.dtype)
            if run.path != "reference" and call.is_self and shards.whole:
                out, energy, weights = dispatch.attend_tied(
                    call.x, call.ignore, maps, w_dual, scale,
                    path=run.path, feature_map=self.feature_map, heads=self.num_heads,
                    dropout=run.dropout, want_energy=run.want_energy,
                )  # fmt: skip
                return Result(out, energy, weights)
        at_keys = self._features(call.y, call.ignore, maps)
        phi = hide_features(at_keys, call.ignore)
        turned = None if call.rotation is None else call.rotation.turn(phi)
        dual = reference.duals(hide(call.y, call.ignore), w_dual, self.num_heads)
        if state is not None:
            scores, weights, state = causal_tied(
                self, phi, dual, call.ignore, state, shards, turned
            )
            out = reference.output(scores, call.ignore, maps.w_out, maps.b_out, run.dropout)
            return Result(out, run.energy(scores), weights, state)
        mixed = reference.tied_weights(phi if turned is None else turned, dual, scale)
        weights = shards.total(mixed).mT  # (B, z, h, s, m)
        sums = None
        if self.feature_map.positive:
            sums = shards.total(widen(phi).sum(-2) * scale[:, None, None, None])
        made = self._evaluate(run, weights, at_keys=at_keys, sums=sums, turned=turned)
        return made._replace(tied=weights)

    def _evaluate(
        self,
        run: Run,
        weights: Tensor,
        *,
        at_keys: Tensor | None = None,
        sums: Tensor | None = None,
        turned: Tensor | None = None,
        state: PrimalState | None = None,
    ) -> Result:
        """Scores e, r, output and energies at x, with weights (B or 1, z, h, s, m), transposed.

        at_keys: the features of y, if they are there. sums: those of tied positive features.
        turned: the features after a rotation.
        """
        call, maps, hidden = run.call, run.maps, run.hidden
        positive, key_sum = self.feature_map.positive, None  # Remark 4.1
        if at_keys is None and not call.is_self and (positive or run.want_energy):
            at_keys = self._features(call.y, call.ignore, maps)
        if run.path == "reference":
            phi = at_keys if call.is_self else None
            if phi is None:
                phi = self._features(call.x, hidden, maps)
            if positive and sums is None:
                key_sum, state = self._key_sum(run, phi if at_keys is None else at_keys, state)
            scores = reference.scores(phi, weights.mT, hidden, key_sum, sums, turned)
            out = reference.output(scores, hidden, maps.w_out, maps.b_out, run.dropout)
            energy = run.energy(scores)
        else:  # cosine features: nothing to normalise
            out, energy = dispatch.attend_fixed(
                call.x, hidden, maps, weights,
                path=run.path, dropout=run.dropout, want_energy=run.want_energy,
            )  # fmt: skip
        if energy is not None and at_keys is not None and not call.is_self:
            # J takes r at the keys, not at the queries
            scores = reference.scores(at_keys, weights.mT, call.ignore, key_sum, sums)
            energy = torch.stack([energy[:, 0], reference.energy(scores)[:, 1]], dim=1)
        return Result(out, energy, None, state)

    def _features(self, x: Tensor, ignore: Tensor | None, maps: Maps) -> Tensor:
        """phi_q and phi_k of every row of x (B, N, d): (B, z, h, N, m)."""
        return reference.features(hide(x, ignore), maps.w_in, maps.b_in, self.feature_map)

    def _key_sum(
        self, run: Run, phi: Tensor, state: PrimalState | None
    ) -> tuple[Tensor, PrimalState | None]:
        """The sum of phi_k over the keys that normalises positive features (Remark 4.1): (B, h, m),
        or in causal layers along the positions, (B, h, N, m), with the state after them."""
        phi_k = widen(hide_features(phi, run.call.ignore)[:, 1])  # (B, h, M, m)
        if state is None or state.key_sum is None:
            return run.shards.total(phi_k.sum(-2)), state
        before = run.shards.before(state.key_sum, lambda: phi_k.sum(-2))
        key_sum = phi_k.cumsum(-2) + before.unsqueeze(2)
        return key_sum, state._replace(key_sum=key_sum[:, :, -1])

    def _decode(self, x: Tensor, state: PrimalState) -> tuple[Tensor, PrimalState]:
        """A few positions of a stream, by the parameters as they are."""
        _, out_proj = linear_parts(self)
        tied = self.weights == "tied"
        run = decoding.tied_scores if tied else decoding.free_scores
        scores, sums, seen = run(
            x, self.in_proj_weight, self.in_proj_bias,
            self.dual_weight if tied else self.projections(x.dtype),
            state.sums, state.seen, heads=self.num_heads,
        )  # fmt: skip
        pairs = scores.unflatten(2, (2, self.num_heads)).transpose(2, 3).flatten(3)  # (B, N, h, 2s)
        heads = F.linear(pairs, *self.readout())
        out = F.linear(heads.flatten(2), out_proj.weight, out_proj.bias)
        return out, PrimalState(sums, seen, None)

    # -- parts -----------------------------------------------------------------------------------

    def maps(self, dtype: torch.dtype) -> Maps:
        """The layer's linear maps in the type of the computation, those of queries and keys with
        the sharpness of the feature map."""
        b_in = None if self.in_proj_bias is None else self.in_proj_bias.to(dtype)
        folded = self.feature_map.fold(self.in_proj_weight.to(dtype), b_in)
        return Maps(*folded, *output_map(self, dtype))

    def projections(self, dtype: torch.dtype) -> Tensor:
        """The parameters W_e and W_r, transposed: (z, h, s, n)."""
        return torch.stack([self.w_e, self.w_r]).to(dtype).mT

    def extra_repr(self) -> str:
        kind = f"weights={self.weights!r}"
        if self.anchors is not None:
            kind += f", anchors={self.anchors}, anchor_rule={self.anchor_rule!r}"
        return (
            f"{self.embed_dim}, {self.num_heads}, rank={self.rank}, {kind}, causal={self.causal}, "
            f"dropout={self.dropout}"
        )
