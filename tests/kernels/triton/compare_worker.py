"""Layers on the Triton kernels against the float64 reference:

    PRIMAL_TRITON=1 TRITON_INTERPRET=1 python tests/kernels/triton/compare_worker.py    # on a CPU
    PRIMAL_TRITON=1 python tests/kernels/triton/compare_worker.py                       # on a GPU

Prints one JSON object: for every case the errors of output, KSVD loss and gradients, relative to
the largest entry, and how many kernels ran.
"""

import copy
import json

import torch

import primal_attention as pa
from primal_attention.kernels.triton import launch
from primal_attention.kernels.triton.switch import interpreted
from primal_attention.theory.features import Elu

DEVICE = "cpu" if interpreted() else "cuda"
CASES = {  # width, heads, rank, batch, length
    "tied elu^2": ("tied", 2, (16, 2, 3, 2, 70)),
    "tied elu^2 masked": ("tied", 2, (24, 2, 5, 2, 33)),
    "tied elu^2 bfloat16": ("tied", 2, (16, 2, 4, 2, 65)),
    "tied elu masked": ("tied", 1, (16, 1, 4, 2, 20)),
    "tied cosine masked": ("tied", 0, (24, 2, 5, 2, 67)),
    "free cosine masked": ("free", 0, (24, 2, 5, 2, 67)),
    "data cosine": ("data", 0, (16, 2, 3, 2, 35)),
    "data cosine masked": ("data", 0, (16, 2, 3, 2, 35)),
    "data cosine bfloat16": ("data", 0, (16, 2, 3, 2, 35)),
}


def step(layer, x, ignore, probe):
    """Output, loss, and the gradients of both together."""
    x = x.clone().requires_grad_()
    out, _ = layer(x, key_padding_mask=ignore)
    loss = pa.ksvd_loss(layer)
    tensors = {"x": x, **dict(layer.named_parameters())}
    total = (out * probe.to(out.dtype)).sum() + 3.0 * loss.to(out.dtype)
    grads = torch.autograd.grad(total, list(tensors.values()))
    return {"out": out.detach(), "loss": loss.detach(), **dict(zip(tensors, grads, strict=True))}


def errors(name):
    weights, power, (width, heads, rank, batch, length) = CASES[name]
    dtype = torch.bfloat16 if "bfloat16" in name else torch.float32
    torch.manual_seed(0)
    focusing = Elu(width // heads, heads, sharpness=1.0, power=power) if power else None
    options = {"feature_map": focusing or "cosine"}
    layer = pa.PrimalAttention(width, heads, rank=rank, weights=weights, **options)
    with torch.no_grad():
        for bias in (layer.in_proj_bias, layer.out_proj.bias):
            bias.normal_()
    layer = layer.to(dtype)
    wide = copy.deepcopy(layer).double()
    wide.fast = False
    layer = layer.to(DEVICE)
    x, probe = torch.randn(2, batch, length, width).to(dtype)
    ignore = None
    if "masked" in name:
        ignore = torch.rand(batch, length) < 0.3
        ignore[0, -3:], ignore[:, 0] = True, False
        x[ignore] = torch.nan
    launches = []
    original = launch.output
    launch.output = lambda *args: launches.append(args) or original(*args)
    try:
        hidden = None if ignore is None else ignore.to(DEVICE)
        found = step(layer, x.to(DEVICE), hidden, probe.to(DEVICE))
    finally:
        launch.output = original
    expected = step(wide, x.double(), ignore, probe.double())
    sizes = {
        key: ((found[key].cpu().double() - e).abs().max() / e.abs().max().clamp(min=1e-30)).item()
        for key, e in expected.items()
    }
    return {"errors": sizes, "launches": len(launches)}


if __name__ == "__main__":
    print(json.dumps({name: errors(name) for name in CASES}))
