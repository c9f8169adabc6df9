"""What a training step of the layer costs a GPU, counted and not run: operations, bytes, products.

    python benchmarks/gpu_model.py                # bfloat16, d = 512, 8 heads, rank 32, N = 4096

Runs forward, KSVD loss and backward on torch's meta device, where tensors have shapes and no
numbers, and counts what would reach the GPU. The time is a bound, not a measurement: for every
operation the larger of its bytes and its products at a share of the device's peaks, and a launch.
Needs `pip install triton` for the kernels' line.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import primal_attention as pa
from primal_attention.kernels.triton import switch
from primal_attention.theory.features import FeatureMap

DEVICES = {"A100": (1.555e12, 312e12), "H100": (3.35e12, 989e12)}  # bytes and products a second
SHARES = 0.8, 0.6  # of both peaks that large operations reach
LAUNCH = 5e-6  # seconds
FREE = {  # operations that launch nothing
    *("view", "_unsafe_view", "_reshape_alias", "t", "transpose", "permute", "expand", "unsqueeze"),
    *("squeeze", "slice", "select", "as_strided", "detach", "alias", "unbind", "split", "unfold"),
    *("empty", "empty_like", "new_empty", "new_empty_strided", "empty_strided"),
}


class Elu(FeatureMap):
    """`(elu(z) + 1)^2`."""

    positive = True
    power = 2.0

    def forward(self, z: Tensor) -> Tensor:
        return (nn.functional.elu(z) + 1.0) ** 2


class Count(TorchDispatchMode):
    """Operations with their bytes and multiply-adds."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[int, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name not in FREE:
            read = [a for a in args if isinstance(a, Tensor)]
            products = 0
            if "mm" in name:
                a = read[-2]
                products = 2 * a.numel() * read[-1].shape[-1]
            self.add([*read, *(out if isinstance(out, (tuple, list)) else [out])], products)
        return out

    def add(self, tensors: list[Any], products: int = 0) -> None:
        size = sum(t.numel() * t.element_size() for t in tensors if isinstance(t, Tensor))
        self.found.append((size, products))

    def seconds(self, device: str) -> float:
        peaks = [peak * share for peak, share in zip(DEVICES[device], SHARES, strict=True)]
        return sum(LAUNCH + max(size / peaks[0], n / peaks[1]) for size, n in self.found)


def stand_ins(count: Count) -> None:
    """Replace the launches by their shapes. A unit is the product of all positions of all sides
    with weights (s, p)."""
    from primal_attention.kernels.triton import launch

    def counted(shape: Any, given: Any, out: Any, units: int) -> Any:
        sides = shape.batch * shape.length * shape.sides
        count.add([*given, *out], 2 * units * sides * shape.head_dim * shape.rank)
        return out

    def wide(like: Tensor, *size: int) -> Tensor:
        return like.new_empty(size, dtype=torch.float32)

    def sums_of(shape: Any, qk: Tensor) -> tuple[Tensor, Tensor | None]:
        first = shape.batch, shape.sides
        z = wide(qk, *first, shape.head_dim) if shape.feature_map else None
        return wide(qk, *first, shape.rank, shape.head_dim), z

    def output(shape: Any, qk: Tensor, *given: Any) -> Any:
        width = len(given[2])  # of w_out; every program makes the scores for its channels
        parts = -(-width // shape.channels(width))
        out = qk.new_empty(*qk.shape[:2], width), wide(qk, shape.batch, shape.sides, shape.rank)
        return counted(shape, [*[qk] * parts, *given], out, parts + width // shape.head_dim)

    def tied_sums(shape: Any, *given: Any) -> Any:
        return counted(shape, given, sums_of(shape, given[0]), 1)

    def weight_gradients(shape: Any, *given: Any, tied: bool) -> Any:
        qk, d_scores = given[0], given[3]
        d_qk = None if tied else torch.empty_like(qk)
        out = torch.empty_like(d_scores), *sums_of(shape, qk), d_qk
        return counted(shape, given, out, 2 if tied else 3)

    def tied_gradients(shape: Any, *given: Any) -> Any:
        return counted(shape, given, (torch.empty_like(given[0]), torch.empty_like(given[1])), 4)

    for stand_in in (output, tied_sums, weight_gradients, tied_gradients):
        setattr(launch, stand_in.__name__, stand_in)


def step(weights: str, features: str, triton: bool, args: argparse.Namespace) -> Count:
    feature_map: Any = Elu(args.width // args.heads, args.width // args.heads)
    layer = pa.PrimalAttention(
        args.width, args.heads, rank=args.rank, weights=weights,
        feature_map=feature_map if features == "elu" else "cosine",
        device="meta", dtype=torch.bfloat16,
    )  # fmt: skip
    x = torch.empty(args.batch, args.length, args.width, device="meta", dtype=torch.bfloat16)
    x.requires_grad_()
    count, serves = Count(), switch.serves
    switch.serves = lambda *_: triton
    try:
        if triton:
            stand_ins(count)
        with torch.autograd.set_multithreading_enabled(False), count:
            out, _ = layer(x)
            given = [torch.empty_like(out), None]
            torch.autograd.grad([out, pa.ksvd_loss(layer)], [x, *layer.parameters()], given)
    finally:
        switch.serves = serves
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    for name, value in (("width", 512), ("heads", 8), ("rank", 32), ("length", 4096), ("batch", 8)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    print("| weights | features | path | operations | MB | GFLOP | A100, ms | H100, ms |")
    print("|---|---|---|---|---|---|---|---|")
    for weights, features in (("tied", "elu"), ("tied", "cosine"), ("data", "cosine")):
        for triton in (False, True):
            count = step(weights, features, triton, args)
            size, products = (sum(column) for column in zip(*count.found, strict=True))
            times = " | ".join(f"{1e3 * count.seconds(device):.2f}" for device in DEVICES)
            path = "Triton" if triton else "eager"
            print(
                f"| {weights} | {features} | {path} | {len(count.found)} | {size / 1e6:,.0f} | "
                f"{products / 1e9:,.0f} | {times} |"
            )


if __name__ == "__main__":
    main()
