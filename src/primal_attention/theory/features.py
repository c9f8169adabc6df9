"""The feature maps phi_q, phi_k of Remark 4.1."""

import difflib
import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from .precision import widen, without_autocast

SMALLEST_NORM = 1e-12  # a shorter row has no direction worth the name


class FeatureMap(nn.Module):
    """A map ``g`` from a query or a key ``z (..., p)`` to its features ``(..., m)``.

    ``positive`` says whether every feature is positive, so that the normaliser
    ``D = diag(phi_q(X) (phi_k(X)^T 1))`` of Remark 4.1 exists and applies.
    """

    positive: ClassVar[bool]

    def __init__(self, head_dim: int, output_dim: int) -> None:
        super().__init__()
        for name, value in (("head_dim", head_dim), ("output_dim", output_dim)):
            if value < 1:
                raise ValueError(f"{name} is {value}; expected at least 1")
        self.head_dim = head_dim
        self.output_dim = output_dim

    def forward(self, z: Tensor) -> Tensor:
        """``(..., head_dim) -> (..., output_dim)``, in the dtype of ``z``."""
        raise NotImplementedError(f"{type(self).__name__} does not define forward")

    def _check(self, z: Tensor) -> None:
        if z.shape[-1] != self.head_dim:
            raise ValueError(f"z has {z.shape[-1]} channels; expected head_dim = {self.head_dim}")


class Cosine(FeatureMap):
    """``g(z) = z / ||z||_2``: the cosine kernel, the map of all the paper's experiments.

    The norm is taken in float32 or wider. A row with ``||z|| <= 1e-12`` maps to zero with zero
    gradient (not to a huge one): it has no direction.
    """

    positive: ClassVar[bool] = False

    def __init__(self, head_dim: int) -> None:
        super().__init__(head_dim, head_dim)

    def forward(self, z: Tensor) -> Tensor:
        self._check(z)
        wide = widen(z)
        square = wide.square().sum(dim=-1, keepdim=True)
        alive = square > SMALLEST_NORM**2
        # both branches of the outer where are finite, hence so is every derivative
        inverse = torch.where(alive, torch.where(alive, square, 1.0).rsqrt(), 0.0)
        return (wide * inverse).to(z.dtype)


class PositiveRandomFeatures(FeatureMap):
    """The positive random features of softmax (Remark 4.1), applied to ``u = scale * z``::

        g(z) = m^{-1/2} exp(-||u||^2 / 2) (exp(w_1^T u), ..., exp(w_m^T u)),   w_i ~ N(0, I_p)

    With the factor ``m^{-1/2}``, ``<g(q), g(k)>`` is an unbiased estimate of
    ``exp(scale^2 <q, k>)`` over the draw of ``w``. The default ``scale = p^{-1/4}`` makes that
    the kernel ``exp(<q, k> / sqrt(p))`` of eq. (2); ``scale=1.0`` is the letter of the remark.

    Computed in float32 or wider and returned in the dtype of ``z``: in float16 a feature above
    65504 overflows, bfloat16 and float32 have the range. ``w`` is the persistent buffer
    ``directions (m, p)``, the same for the same ``seed`` on every device.
    """

    positive: ClassVar[bool] = True
    directions: Tensor

    def __init__(
        self,
        head_dim: int,
        num_features: int | None = None,
        *,
        scale: float | None = None,
        seed: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(head_dim, head_dim if num_features is None else num_features)
        self.scale = head_dim**-0.25 if scale is None else scale
        if not self.scale > 0:
            raise ValueError(f"scale is {scale}; expected a positive number")
        self.seed = seed
        empty = torch.empty(self.output_dim, head_dim, device=device, dtype=dtype)
        self.register_buffer("directions", empty)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw ``w`` from the seed again (also after ``to_empty`` of a module made on meta)."""
        shape = self.directions.shape
        # drawn on the CPU in float32, so that device and dtype do not change the draw
        generator = torch.Generator(device="cpu").manual_seed(self.seed)
        drawn = torch.randn(shape, generator=generator, device="cpu", dtype=torch.float32)
        with torch.no_grad():
            self.directions.copy_(drawn)

    def forward(self, z: Tensor) -> Tensor:
        self._check(z)
        # an exponent rounded to bfloat16 would be a feature wrong by several percent
        with without_autocast(z.device):
            u = widen(z) * self.scale
            exponent = u @ self.directions.to(u.dtype).mT - 0.5 * u.square().sum(-1, keepdim=True)
            features = exponent.exp() / math.sqrt(self.output_dim)
        return features.to(z.dtype)

    def extra_repr(self) -> str:
        return f"{self.head_dim}, {self.output_dim}, scale={self.scale:.4g}, seed={self.seed}"


_NAMES = ("cosine", "exp")


def make_feature_map(
    spec: str | FeatureMap,
    head_dim: int,
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> FeatureMap:
    """The feature map named ``spec``: ``"cosine"`` or ``"exp"``.

    A ``FeatureMap`` is returned as it is (``device`` and ``dtype`` are then its own business).
    """
    if isinstance(spec, FeatureMap):
        if spec.head_dim != head_dim:
            raise ValueError(
                f"the feature map is made for head_dim = {spec.head_dim}; expected {head_dim}"
            )
        return spec
    if spec == "cosine":
        return Cosine(head_dim)
    if spec == "exp":
        return PositiveRandomFeatures(head_dim, device=device, dtype=dtype)
    near = difflib.get_close_matches(str(spec), _NAMES, n=1, cutoff=0.0)[0]
    known = ", ".join(map(repr, _NAMES))
    raise ValueError(
        f"feature map {spec!r} is unknown; expected one of {known} or a FeatureMap "
        f"(nearest: {near!r})"
    )
