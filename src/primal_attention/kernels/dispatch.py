"""Which pass serves a call: the one place that decides.

| path | serves | file |
|---|---|---|
| reference | every call; the truth of the others | `reference.py`, put together in the layer |
| tiles | cosine features in eager mode | `passes.py`, in inference also `folded.py` |
| decoding | a few positions of a causal layer in inference | `decoding.py` |
| triton | self-attention on a GPU, with `PRIMAL_TRITON=1` | `triton/` |
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ..theory.features import Cosine, FeatureMap
from . import passes
from .folded import attend_folded, features_are_cheaper, fold_weights
from .maps import Maps as Maps
from .triton import switch

Path = Literal["reference", "tiles", "decoding", "triton"]
DECODED = 256  # positions of a batch up to which `decoding` serves


def autocast_type(x: Tensor) -> torch.dtype | None:
    """The type in which autocast would multiply x: its own for float64, which it leaves alone; None
    where autocast is off or does not know the device."""
    kind = x.device.type
    if not (torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)):
        return None
    return x.dtype if x.dtype == torch.float64 else torch.get_autocast_dtype(kind)


def choose_path(
    x: Tensor,
    dtype: torch.dtype,
    feature_map: FeatureMap,
    *,
    fast: bool,
    decoding: bool,
    triton: switch.Layer | None = None,
) -> Path:
    """The path of a call on x (B, N, d) that computes in `dtype`. fast: whether the layer allows
    more than the reference. decoding: whether it is causal, in inference, without a mask. triton:
    the layer, if the call is one that those kernels may serve."""
    # first: a graph with a dynamic length must not ask how long the sequence is
    if not fast or torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return "reference"
    if triton is not None and switch.serves(x, dtype, feature_map, triton):
        return "triton"
    # in float16 scores may overflow before their division by the norm
    if not isinstance(feature_map, Cosine) or dtype == torch.float16:
        return "reference"
    decoding = decoding and x.shape[0] * x.shape[1] <= DECODED and not torch.is_grad_enabled()
    decoding = decoding and dtype in (torch.float32, torch.float64)
    if decoding and not torch.is_autocast_enabled(x.device.type):
        return "decoding"
    return "tiles"


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
