"""The primal objective J, eqs. (6) and (11), per batch element and head."""

from typing import Literal

import torch
from torch import Tensor

from .precision import widen, without_autocast

Positions = Literal["mean", "sum"]


def energy(scores: Tensor, sqrt_lambda: Tensor, valid: Tensor | None = None) -> Tensor:
    """`sum_i e_i^T Lambda e_i` with `Lambda = diag(sqrt_lambda^2)`, over valid positions.

    `scores (..., N, s)`, `sqrt_lambda (..., s)`, `valid (..., N)` bool with True = valid,
    of the same number of dimensions as the scores without their last. Result `(...)`, in
    float32 or wider. What is at an invalid position, even NaN, does not enter.
    """
    _check_directions(scores.shape[-1], sqrt_lambda)
    weighted = widen(scores) * widen(sqrt_lambda).unsqueeze(-2)
    if valid is not None:
        check_valid(valid, scores)
        weighted = torch.where(valid.unsqueeze(-1), weighted, 0.0)
    return weighted.square().sum(dim=(-2, -1))


def gram_energy(gram: Tensor, weights: Tensor, sqrt_lambda: Tensor) -> Tensor:
    """The same energy from `G = Phi^T Phi`: `Tr(Lambda W^T G W)`.

    `gram (..., p, p)`, `weights` = `W_{e|X}` or `W_{r|X} (..., p, s)`,
    `sqrt_lambda (..., s)`; result `(...)`. No position enters: cheaper once G is known.
    """
    _check_directions(weights.shape[-1], sqrt_lambda)
    if gram.shape[-2:] != (weights.shape[-2], weights.shape[-2]):
        raise ValueError(
            f"gram has shape {tuple(gram.shape)}; expected (..., p, p) with "
            f"p = {weights.shape[-2]}, the rows of the weights"
        )
    with without_autocast(gram.device):
        scaled = widen(weights) * widen(sqrt_lambda).unsqueeze(-2)  # (..., p, s)
        return ((widen(gram) @ scaled) * scaled).sum(dim=(-2, -1))


def trace_term(w_e: Tensor, w_r: Tensor) -> Tensor:
    """`Tr(W_e^T W_r)` of `(..., n, s)` and `(..., n, s)`; result `(...)`."""
    if w_e.shape[-2:] != w_r.shape[-2:]:
        raise ValueError(
            f"w_e has shape {tuple(w_e.shape)} and w_r {tuple(w_r.shape)}; "
            "expected the same (n, s) in the last two dimensions"
        )
    return (widen(w_e) * widen(w_r)).sum(dim=(-2, -1))


def objective(
    energy_e: Tensor,
    energy_r: Tensor,
    trace: Tensor,
    *,
    count_e: Tensor | int | None = None,
    count_r: Tensor | int | None = None,
    positions: Positions = "mean",
) -> Tensor:
    """`J = energy_e / 2 + energy_r / 2 - Tr(W_e^T W_r)`, eq. (11). All shaped `(...)`.

    With `positions="mean"` each energy is divided by its number of valid positions
    (`count_e`, `count_r`), so that J means the same at every length; a side without any
    position contributes 0. `positions="sum"` is the letter of (11) and takes no counts.
    """
    check_positions(positions)
    if positions == "sum":
        if count_e is not None or count_r is not None:
            raise ValueError('counts were given; positions="sum" expects none')
        return energy_e * 0.5 + energy_r * 0.5 - trace
    if count_e is None or count_r is None:
        raise ValueError(
            f"count_e is {count_e} and count_r is {count_r}; "
            'positions="mean" expects both numbers of positions'
        )
    half_e, half_r = _half_inverse(energy_e, count_e), _half_inverse(energy_r, count_r)
    return energy_e * half_e + energy_r * half_r - trace


def check_positions(positions: str) -> None:
    """Raise unless `positions` is a known convention."""
    if positions not in ("mean", "sum"):
        raise ValueError(f'positions is {positions!r}; expected "mean" or "sum"')


def check_valid(valid: Tensor, rows: Tensor) -> None:
    """Raise unless `valid (..., N)` is a boolean mask of `rows (..., N, c)`."""
    if valid.dtype != torch.bool:
        raise ValueError(f"valid has dtype {valid.dtype}; expected torch.bool, True = valid")
    # equal dimensions: a (B, N) mask must not broadcast silently against (B, H, N) positions
    expected = rows.shape[:-1]
    fits = len(valid.shape) == len(expected) and all(
        v in (1, e) for v, e in zip(valid.shape, expected, strict=True)
    )
    if not fits or valid.shape[-1] != expected[-1]:
        raise ValueError(
            f"valid has shape {tuple(valid.shape)}; expected {tuple(expected)} "
            "(leading dimensions may be 1)"
        )


def _check_directions(s: int, sqrt_lambda: Tensor) -> None:
    if sqrt_lambda.shape[-1] != s:
        raise ValueError(
            f"sqrt_lambda has {sqrt_lambda.shape[-1]} entries; expected one for each of the "
            f"{s} directions"
        )


def _half_inverse(total: Tensor, count: Tensor | int) -> Tensor | float:
    """`1 / (2 count)`, and 0 for no positions at all."""
    if isinstance(count, int):
        return 0.5 / count if count > 0 else 0.0
    return torch.where(count > 0, 0.5 / count.clamp(min=1).to(total.dtype), 0.0)
