"""Folding: the exact inference form of layers with free weights.

Only linear maps lead from phi to the output, so they are multiplied once. Per head,
with w_out = W_o W_c (d x 2s): either the s scores are kept, or, where s is large, not even those:

    out = w_out [W_e^T phi_q ; W_r^T phi_k] + c          2 s (p + d) products a head and position
    out = A phi_q + B phi_k + c                          2 p d
"""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any, ClassVar, Literal, NoReturn, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...kernels import decoding
from ...kernels.dispatch import Maps
from ...kernels.folded import attend_folded, features_are_cheaper, fold_weights
from ..base import Attention
from ..inputs import Sequences
from .layer import PrimalAttention, Result, Run
from .state import PrimalState

M = TypeVar("M", bound=nn.Module)


class FoldedPrimalAttention(PrimalAttention):
    """The folded form of a layer with free weights: its outputs, from fewer products, for inference
    only. What W_e, W_r, Lambda and W_c were cannot be told from it any more."""

    compiled: ClassVar[bool] = False  # what the kernels would fold is folded already
    folded: Literal["scores", "features"]  # what the output is a linear map of
    folded_projections: Tensor  # (z, h, s, m): W_e and W_r, transposed; features: the identity
    folded_w_out: Tensor  # (d, 2h * s) or (d, 2h * m)
    folded_b_out: Tensor  # (d,)

    @torch.no_grad()
    def __init__(self, layer: PrimalAttention) -> None:
        Attention.__init__(
            self, layer.embed_dim, layer.num_heads,
            causal=layer.causal, dropout=layer.dropout, batch_first=layer.batch_first,
        )  # fmt: skip
        self.rank, self.weights, self.anchors = layer.rank, layer.weights, None
        self.anchor_rule, self.fast = layer.anchor_rule, layer.fast
        self.feature_map = copy.deepcopy(layer.feature_map)
        for name, parameter in (("weight", layer.in_proj_weight), ("bias", layer.in_proj_bias)):
            own = None if parameter is None else nn.Parameter(parameter.clone(), False)
            self.register_parameter(f"in_proj_{name}", own)
        dtype = layer.in_proj_weight.dtype
        maps, projections = layer.maps(dtype), layer.projections(dtype)
        w_out, features = maps.w_out, projections.shape[-1]
        self.folded = "scores"
        if features_are_cheaper(layer.rank, features, layer.embed_dim):
            self.folded = "features"
            w_out = fold_weights(w_out, projections[None])[0]
            eye = torch.eye(features, dtype=dtype, device=w_out.device)
            projections = eye.expand(*projections.shape[:2], -1, -1)
        self.register_buffer("folded_projections", projections.contiguous())
        self.register_buffer("folded_w_out", w_out.contiguous())
        self.register_buffer("folded_b_out", maps.b_out)
        # nn.TransformerEncoder asks these two whether they need a gradient
        vars(self)["out_proj"] = SimpleNamespace(weight=torch.empty(0), bias=torch.empty(0))
        self.train(layer.training)

    def maps(self, dtype: torch.dtype) -> Maps:
        """The layer's linear maps in the type of the computation."""
        b_in = None if self.in_proj_bias is None else self.in_proj_bias.to(dtype)
        folded = self.feature_map.fold(self.in_proj_weight.to(dtype), b_in)
        return Maps(*folded, self.folded_w_out.to(dtype), self.folded_b_out.to(dtype))

    def projections(self, dtype: torch.dtype) -> Tensor:
        """What the features are multiplied with, transposed: (z, h, s, m)."""
        return self.folded_projections.to(dtype)

    def _attend(
        self, call: Sequences, state: PrimalState | None, *, record: bool
    ) -> tuple[Tensor, PrimalState | None]:
        if self.training:
            raise RuntimeError("a folded layer is for inference only; expected model.eval()")
        return super()._attend(call, state, record=False)

    def _evaluate(self, run: Run, weights: Tensor, **given: Any) -> Result:
        if self.folded == "features" and run.path != "reference" and not torch.is_grad_enabled():
            maps, sides = run.maps._replace(w_out=run.maps.w_out[None]), 2 * self.num_heads
            out = attend_folded(run.call.x, run.hidden, *maps, sides=sides)
            return Result(out, None, None, given.get("state"))
        return super()._evaluate(run, weights, **given)

    def _decode(self, x: Tensor, state: PrimalState) -> tuple[Tensor, PrimalState]:
        weights = None if self.folded == "features" else self.folded_projections
        scores, sums, seen = decoding.free_scores(
            x, self.in_proj_weight, self.in_proj_bias, weights,
            state.sums, state.seen, heads=self.num_heads,
        )  # fmt: skip
        out = F.linear(scores.flatten(2), self.folded_w_out, self.folded_b_out)
        return out, PrimalState(sums, seen, None)

    def reset_parameters(self) -> NoReturn:
        _refuse("reset_parameters")

    def ksvd_problem(self, *_: Any, **__: Any) -> NoReturn:
        _refuse("ksvd_problem")

    def init_ksvd_(self, *_: Any, **__: Any) -> NoReturn:
        _refuse("init_ksvd_")

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, folded={self.folded!r}"


def _refuse(name: str) -> NoReturn:
    raise RuntimeError(f"{name} needs W_e and W_r; expected a layer that is not folded")


def fold_(model: M) -> M:
    """Fold every primal layer with free weights in a model, in place; returns the model.

    Every such layer becomes a `FoldedPrimalAttention`: the object stays, so that the model, hooks
    and other references to the layer keep working; its class and its contents change. Outputs stay
    the same; training, `ksvd_loss` and the parameters W_e, W_r, Lambda, W_c are gone. Fold a
    deepcopy to keep the original, or call `FoldedPrimalAttention(layer)`, which changes nothing.
    """
    layers = [m for m in model.modules() if isinstance(m, PrimalAttention)]
    layers = [m for m in layers if not isinstance(m, FoldedPrimalAttention)]
    free = [layer for layer in layers if layer.weights == "free"]
    if not free:
        kinds = ", ".join(sorted({layer.weights for layer in layers})) or "none"
        raise ValueError(
            f'there is no layer to fold; expected primal layers with weights="free", found: {kinds}'
        )
    for layer in free:
        hooks = {name: value for name, value in vars(layer).items() if "hook" in name}
        contents = vars(FoldedPrimalAttention(layer)) | hooks
        vars(layer).clear()
        vars(layer).update(contents)
        layer.__class__ = FoldedPrimalAttention
    return model
