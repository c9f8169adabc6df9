"""How near the primal layers of a model are to a KSVD solution, and what they make of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..adapters.converted import Converted
from ..attention import PrimalAttention
from ..attention.inputs import Sequences
from ..attention.primal import FoldedPrimalAttention
from ..theory.objective import trace_term
from .capture import Found, find_attentions, run
from .moments import Moments, primal_moments
from .readers import Call, primal_call

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LayerDiagnostics:
    """One primal layer; arrays are (inputs, heads) or (inputs, heads, k), in float64.

    `objective`: J with means over the positions, eq. (11); 0 at a solution, necessary and not
    sufficient. `angles_e, angles_r`: principal angles in degrees, ascending, between the span of
    the learned scores e (r) over the positions and that of the leading left (right) singular
    vectors of K; 0 at a solution. `lam` ascending and `inverse_sigma` ascending: the learned
    Lambda of the sums, `Lambda / N`, against 1 / sigma; equal at a solution. `share_e`: the
    part of the output's energy that comes from e, `||o_e||^2 / (||o_e||^2 + ||o_r||^2)`; the rest
    comes from r. `asymmetry`: `||K - K^T||_F / ||K + K^T||_F`, None in cross-attention.
    """

    name: str
    kind: str
    objective: Array
    angles_e: Array
    angles_r: Array
    lam: Array
    inverse_sigma: Array
    share_e: Array
    asymmetry: Array | None

    @property
    def lambda_ratio(self) -> Array:
        """`Lambda_i sigma_i (inputs, heads, k)`: 1 at a solution."""
        return self.lam / self.inverse_sigma

    def to_dict(self) -> dict[str, Any]:
        asymmetry = None if self.asymmetry is None else self.asymmetry.mean(0).tolist()
        return {
            "name": self.name,
            "kind": self.kind,
            "inputs": len(self.objective),
            "objective_by_head": self.objective.mean(0).tolist(),
            "angles_e_by_head": self.angles_e.mean(0).tolist(),
            "angles_r_by_head": self.angles_r.mean(0).tolist(),
            "lambda_by_head": self.lam.mean(0).tolist(),
            "inverse_sigma_by_head": self.inverse_sigma.mean(0).tolist(),
            "share_e_by_head": self.share_e.mean(0).tolist(),
            "asymmetry_by_head": asymmetry,
        }


@dataclass(frozen=True, eq=False)
class KSVDDiagnostics:
    """The diagnostics of all primal layers of a model; `skipped`: {name: reason}."""

    layers: tuple[LayerDiagnostics, ...]
    skipped: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Numbers, lists and strings only: ready for JSON."""
        layers = [layer.to_dict() for layer in self.layers]
        return {"layers": layers, "skipped": dict(self.skipped)}

    def __str__(self) -> str:
        lines = [
            f"{'layer':<28}{'head':>5}{'J':>12}{'angle e':>9}{'angle r':>9}{'Lambda sigma':>14}"
            f"{'share e':>9}{'asymmetry':>11}"
        ]
        for one in self.layers:
            for h in range(one.objective.shape[1]):
                ratio = np.exp(np.log(one.lambda_ratio[:, h]).mean())
                skew = "-" if one.asymmetry is None else f"{one.asymmetry[:, h].mean():.3f}"
                lines.append(
                    f"{one.name:<28}{h:>5}{one.objective[:, h].mean():>12.3e}"
                    f"{one.angles_e[:, h].mean():>8.1f}°{one.angles_r[:, h].mean():>8.1f}°"
                    f"{ratio:>14.3g}{one.share_e[:, h].mean():>9.2f}{skew:>11}"
                )
        lines += [f"skipped {name}: {reason}" for name, reason in self.skipped.items()]
        return "\n".join(lines)


@torch.no_grad()
def ksvd_diagnostics(model_or_attention: nn.Module, inputs: Any) -> KSVDDiagnostics:
    """What the primal layers of a model are on inputs (given as to `spectrum`), by layer and head.

    Everything comes from p x p matrices summed over the positions: O(N p^2), K is not formed.
    Converted layers count as primal ones. With positive features the problem is that of the
    normalised kernel, see `PrimalAttention.ksvd_problem`. Folded layers, causal tied ones and those
    with rotary positions are skipped with their reason.
    """
    found = [
        one
        for one in find_attentions(model_or_attention)
        if isinstance(one.module, PrimalAttention | Converted)
    ]
    if not found:
        raise ValueError(
            f"{type(model_or_attention).__name__} has no primal layer; expected at least one"
        )
    parts: dict[str, list[dict[str, Tensor | None]]] = {one.name: [] for one in found}

    def see(one: Found, call: Call, out: Any) -> None:
        try:
            parts.setdefault(one.name, []).append(_diagnose(*primal_call(one.module, call)))
        except RuntimeError as reason:  # of a decomposition
            raise ValueError(str(reason)) from reason

    skipped = run(model_or_attention, found, inputs, see)
    kinds = {one.name: one.reader.kind for one in found}
    layers = tuple(
        LayerDiagnostics(name, kinds[name.partition(", call ")[0]], **_joined(part))
        for name, part in parts.items()
        if name not in skipped
    )
    return KSVDDiagnostics(layers, skipped)


def _diagnose(layer: PrimalAttention, call: Sequences) -> dict[str, Tensor | None]:
    if isinstance(layer, FoldedPrimalAttention):
        raise ValueError("it has no W_e and W_r of its own; expected a layer that is not folded")
    if layer.causal and layer.weights == "tied":
        raise ValueError("a causal tied layer makes no one KSVD problem")
    moments = primal_moments(layer, call, products=True)
    wide = moments.triangle_q.dtype
    w_e, w_r, trace = _weights(layer, moments)
    lam = layer.sqrt_lambda.to(wide).square()  # (h, s)
    e, r = moments.triangle_q @ w_e, moments.triangle_k @ w_r  # scores up to a rotation of rows
    counts = [c.clamp(min=1).to(wide)[:, None] for c in (moments.count_q, moments.count_k)]
    energies = [(x.square().sum(-2) * lam).sum(-1) for x in (e, r)]  # (B, h)
    objective = 0.5 * energies[0] / counts[0] + 0.5 * energies[1] / counts[1] - trace

    u, sigma, vh = torch.linalg.svd(moments.core())
    k = min(layer.rank, sigma.shape[-1])
    inverse = 1.0 / sigma[..., :k].clamp(min=torch.finfo(wide).tiny)
    scaled = (lam / counts[0].unsqueeze(-1)).sort(-1).values[..., :k]  # (B, h, k)
    w_out = layer.maps(wide).w_out.unflatten(1, (2, layer.num_heads, layer.rank))  # (d, 2, h, s)
    out_e, out_r = w_out.permute(1, 2, 3, 0)  # from the scores of each head to the output
    part_e, part_r = ((x @ m).square().sum((-2, -1)) for x, m in ((e, out_e), (r, out_r)))
    total = part_e + part_r
    share = torch.where(total > 0, part_e / torch.where(total > 0, total, 1.0), 0.5)
    return {
        "objective": objective,
        "angles_e": principal_angles(e, u[..., :k]),
        "angles_r": principal_angles(r, vh.mT[..., :k]),
        "lam": scaled,
        "inverse_sigma": inverse,
        "share_e": share,
        "asymmetry": moments.asymmetry(),
    }


def _weights(layer: PrimalAttention, moments: Moments) -> tuple[Tensor, Tensor, Tensor]:
    """`W_e|X` and `W_r|X (B, h, p, s)` and the trace of (11), (B, h)."""
    wide = moments.triangle_q.dtype
    if moments.duals is not None:
        scale = 1.0 / moments.count_k.clamp(min=1).to(wide)[:, None, None, None]
        w_r, w_e = (dual * scale for dual in moments.duals)
        return w_e, w_r, trace_term(w_e, w_r)
    batch = len(moments.count_q)
    w_e, w_r = layer.w_e.to(wide), layer.w_r.to(wide)
    trace = trace_term(w_e, w_r).expand(batch, -1)
    if moments.anchors is None:
        return w_e.expand(batch, -1, -1, -1), w_r.expand(batch, -1, -1, -1), trace
    return moments.anchors.mT @ w_e, moments.anchors.mT @ w_r, trace


def principal_angles(a: Tensor, b: Tensor) -> Tensor:
    """The angles in degrees, ascending, between the spans of the columns of `a (..., n, s)` and
    of `b (..., n, k)`, s >= k; exact for small angles too (Bjorck & Golub 1973): (..., k)."""
    q_a, q_b = torch.linalg.qr(a).Q, torch.linalg.qr(b).Q
    cosines = torch.linalg.svdvals(q_a.mT @ q_b)
    sines = torch.linalg.svdvals(q_b - q_a @ (q_a.mT @ q_b)).flip(-1)
    k = min(cosines.shape[-1], sines.shape[-1])
    return torch.rad2deg(torch.atan2(sines[..., :k], cosines[..., :k]))


def _joined(parts: list[dict[str, Tensor | None]]) -> dict[str, Any]:
    """Batches one after the other, cut to the fewest directions among them."""
    joined: dict[str, Any] = {}
    for name in parts[0]:
        tensors = [part[name] for part in parts]
        known = [t for t in tensors if t is not None]
        if len(known) < len(tensors):
            joined[name] = None
            continue
        if known[0].dim() == 3:
            k = min(t.shape[-1] for t in known)
            known = [t[..., :k] for t in known]
        joined[name] = torch.cat(known).double().cpu().numpy()
    return joined
