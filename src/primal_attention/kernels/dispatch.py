"""Which pass serves a call: the one place that decides.

| path | serves | file |
|---|---|---|
| reference | every call; the truth of the others | `reference.py`, put together in the layer |
| native | cosine and `(elu + 1)^b` features on a CPU, compiled | `native/` |
| tiles | cosine features in eager mode | `passes.py`, in inference also `folded.py` |
| decoding | a few positions of a causal layer in inference | `decoding.py` |
| triton | self-attention on a GPU, with `PRIMAL_TRITON=1` | `triton/` |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from ..theory.features import Cosine, Elu, FeatureMap
from ..theory.precision import knows_autocast
from ..theory.transforms import is_transformed
from . import passes
from .folded import attend_folded, features_are_cheaper, fold_weights
from .graphs import is_exporting
from .maps import Maps as Maps
from .native import library, operator, ops
from .triton import switch

Path = Literal["reference", "tiles", "decoding", "native", "triton"]
Weights = Literal["data", "free", "tied", "scan"]  # scan: tied ones of a causal layer
DECODED = 256  # positions of a batch up to which `decoding` serves


def autocast_type(x: Tensor) -> torch.dtype | None:
    """The type in which autocast would multiply x: its own for float64, which it leaves alone; None
    where autocast is off or does not know the device."""
    kind = x.device.type
    if not (knows_autocast(kind) and torch.is_autocast_enabled(kind)):
        return None
    return x.dtype if x.dtype == torch.float64 else torch.get_autocast_dtype(kind)


def choose_path(
    x: Tensor,
    dtype: torch.dtype,
    feature_map: FeatureMap,
    *,
    fast: bool,
    decoding: bool,
    native: Weights | None = None,
    triton: switch.Layer | None = None,
) -> Path:
    """The path of a call on x (B, N, d) that computes in `dtype`. fast: whether the layer allows
    more than the reference. decoding: whether it is causal, in inference, without a mask. native:
    the weights of the layer if nothing but their kind speaks against the compiled kernels. triton:
    the layer, if the call is one that those kernels may serve."""
    # first: a graph with a dynamic length must not ask how long the sequence is
    if torch.compiler.is_compiling():
        if not fast or native is None or is_exporting():
            return "reference"
        known = _knows_native(x, dtype, feature_map, native)
        return "native" if known and operator.available() else "reference"
    if not fast or is_transformed():
        return "reference"
    if triton is not None and switch.serves(x, dtype, feature_map, triton):
        return "triton"
    served = native is not None and _has_native(x, dtype, feature_map, native)
    # in float16 scores may overflow before their division by the norm
    if not isinstance(feature_map, Cosine) or dtype == torch.float16:
        return "native" if served else "reference"
    decoding = decoding and x.shape[0] * x.shape[1] <= DECODED and not torch.is_grad_enabled()
    decoding = decoding and dtype in (torch.float32, torch.float64)
    if decoding and not torch.is_autocast_enabled(x.device.type):
        return "decoding"
    return "native" if served else "tiles"


def native_map(feature_map: FeatureMap) -> int | None:
    """The number of a feature map in the compiled kernels, which have `(elu + 1)^b` for b = 1 and
    b = 2; None where they have it not."""
    if isinstance(feature_map, Cosine):
        return ops.COSINE
    if not isinstance(feature_map, Elu) or feature_map.log_power is not None:
        return None
    return {1.0: ops.ELU, 2.0: ops.SQUARED_ELU}.get(feature_map.power)


def _knows_native(x: Tensor, dtype: torch.dtype, feature_map: FeatureMap, weights: Weights) -> bool:
    """Whether the compiled kernels know the case: a CPU, float32 or bfloat16, and positive features
    only with tied weights."""
    found = native_map(feature_map)
    return (
        found is not None
        and (found == ops.COSINE or weights in ("tied", "scan"))
        and dtype in (torch.float32, torch.bfloat16)
        and x.device.type == "cpu"
    )


def _has_native(x: Tensor, dtype: torch.dtype, feature_map: FeatureMap, weights: Weights) -> bool:
    """Whether the compiled kernels serve: plain tensors that no mode watches."""
    return (
        _knows_native(x, dtype, feature_map, weights)
        and type(x) in (Tensor, torch.nn.Parameter)
        and x.numel() > 0
        and not torch._C._len_torch_dispatch_stack()
        and library.kernels() is not None
    )


def attend_native(
    x: Tensor,
    ignore: Tensor | None,
    parameters: ops.Parameters,
    feature_map: FeatureMap,
    *,
    anchors: int,
    causal: bool,
    before: ops.Before | None,
    dropout: float,
    want_terms: bool,
    went_back: Callable[[], None],
) -> ops.Results:
    """Equation (9) as one node at x (B, N, d), without the positions to ignore (B, N); before: the
    sums of causal tied weights. The backward pass calls `went_back`, except in compiled graphs."""
    number = native_map(feature_map)
    if torch.compiler.is_compiling() and number is not None:
        return operator.attend(
            x, ignore, parameters,
            feature_map=number, causal=causal, anchors=anchors, want_terms=want_terms,
        )  # fmt: skip
    kernels = library.kernels()
    if kernels is None or number is None:
        raise RuntimeError("the compiled kernels are gone; expected those that choose_path found")
    kind: ops.Kind = "fixed" if parameters.w_dual is None else "tied"
    options = ops.Options(kernels, kind, number, causal, anchors, dropout, want_terms, went_back)
    return ops.attend(x, ignore, parameters, options, before)


def attend_fixed(
    x: Tensor,
    hidden: Tensor | None,
    maps: Maps,
    weights: Tensor,
    *,
    path: Path,
    dropout: float,
    want_energy: bool,
) -> tuple[Tensor, Tensor | None]:
    """Equation (9) with weights (B or 1, z, h, s, p), transposed: the output (B, N, d) of x, zero
    where hidden (B, N), and the sums of squared scores (B, z, h, s)."""
    sides = 2 * weights.shape[2]
    if path == "triton":
        from .triton import nodes

        out, squares = nodes.attend_fixed(x, hidden, maps, weights.flatten(1, 2))
        return out, squares.unflatten(1, (2, -1)) if want_energy else None
    if not (torch.is_grad_enabled() or want_energy or dropout) and _folding_pays(x, weights):
        w_out = fold_weights(maps.w_out, weights)
        return attend_folded(x, hidden, maps.w_in, maps.b_in, w_out, maps.b_out, sides=sides), None
    out, energy = passes.attend_fixed(
        x, hidden, maps.w_in, maps.b_in, weights.flatten(1, 2), maps.w_out, maps.b_out,
        sides=sides, dropout=dropout, want_energy=want_energy,
    )  # fmt: skip
    return out, None if energy is None else energy.unflatten(1, (2, -1))


def attend_tied(
    x: Tensor,
    ignore: Tensor | None,
    maps: Maps,
    w_dual: Tensor,
    scale: Tensor,
    *,
    path: Path,
    feature_map: FeatureMap,
    heads: int,
    dropout: float,
    want_energy: bool,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Equation (9) with the weights (14) of x itself: the output (B, N, d), the sums of squared
    scores (B, z, h, s), and the weights (B, z, h, s, p), transposed."""
    energy: Tensor | None
    if path == "triton":
        from .triton import nodes

        out, energy, weights = nodes.attend_tied(x, ignore, maps, w_dual, scale, feature_map)
    else:
        out, energy, weights = passes.attend_tied(
            x, ignore, scale, maps.w_in, maps.b_in, w_dual, maps.w_out, maps.b_out,
            sides=2 * heads, dropout=dropout, want_energy=want_energy,
        )  # fmt: skip
    energy = None if energy is None else energy.unflatten(1, (2, -1))
    return out, energy, weights.unflatten(1, (2, -1))


def _folding_pays(x: Tensor, weights: Tensor) -> bool:
    """Whether many positions share each set of maps that would be made for one call."""
    rank, head_dim = weights.shape[-2:]
    positions = x.shape[1] if len(weights) > 1 else x.shape[0] * x.shape[1]
    return features_are_cheaper(rank, head_dim, x.shape[2]) and positions >= 8 * rank
