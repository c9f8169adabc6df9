"""Compile the Triton kernels ahead of time, without a GPU: registers, spills and shared memory.

    python benchmarks/triton_compile.py                       # sm_80, sm_90 and gfx942
    python benchmarks/triton_compile.py --target sm_90 --width 1024 --heads 8 --rank 64

Needs `pip install triton`. Fails if a kernel of the usual shapes spills registers to memory.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from typing import Any, NamedTuple

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas
from triton.compiler import ASTSource

from primal_attention.kernels.triton import backward, forward
from primal_attention.kernels.triton.launch import Shape
from primal_attention.kernels.triton.switch import WIDEST

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
SHAPES = [(64, 2, 16), (512, 8, 32), (1024, 8, 64)]
KERNELS = {
    "output": forward.output,
    "tied_sums": forward.tied_sums,
    "weight_gradients": backward.weight_gradients,
    "tied_gradients": backward.tied_gradients,
}
# arguments in the type of the computation; sums over positions are float32 where they are made
NARROW = {"qk", "dual", "weights", "w_out", "b_out", "out", "d_scores", "found", "d_qk", "d_dual"}
WIDE = {"tied_sums": {"weights"}, "weight_gradients": {"d_weights"}}
COSINE, SQUARED = 0, 2


class Use(NamedTuple):
    registers: int
    spilled: int  # bytes, or on AMD registers
    shared: int  # bytes


def compile_one(
    name: str, target: GPUTarget, dtype: str, d: int, heads: int, rank: int, feature_map: int
) -> Use:
    kernel, tied = KERNELS[name], feature_map == SQUARED
    half, amd = dtype == "bf16", target.backend == "hip"
    shape = Shape(8, 4096, 2 * heads, d // heads, rank, feature_map, half, amd)
    constants = shape.constants(None)
    options = {key: constants.pop(key) for key in ("num_warps", "num_stages")}
    constants |= {"D": d, "BD": shape.channels(d), "TIED": tied, "CAST": False}
    names = kernel.arg_names
    constants = {key: value for key, value in constants.items() if key in names}
    narrow = (NARROW | {"d_weights"}) - WIDE.get(name, set())

    def type_of(argument: str) -> str:
        if argument in constants:
            return "constexpr"
        if argument in ("N", "stride_b"):
            return "i32"
        return "*u8" if argument == "hidden" else f"*{dtype if argument in narrow else 'fp32'}"

    signature = {argument: type_of(argument) for argument in names}
    aligned = [a for a in names if signature[a].startswith("*") or a == "N"]
    source = ASTSource(
        fn=kernel,
        signature=signature,
        constexprs={(names.index(key),): value for key, value in constants.items()},
        attrs={(names.index(a),): [["tt.divisibility", 16]] for a in aligned},
    )
    compiled = triton.compile(source, target=target, options=options)
    read = _nvidia if target.backend == "cuda" else _amd
    return Use(*read(compiled, target), compiled.metadata.shared)


def _nvidia(compiled: Any, target: GPUTarget) -> tuple[int, int]:
    arch = "sm_90a" if target.arch == 90 else f"sm_{target.arch}"
    ptxas = get_ptxas(target.arch).path
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(compiled.asm["ptx"])
        file.flush()
        # the options that Triton itself gives
        options = ["-v", "-lineinfo", "--regAllocOptLevel=2", f"--gpu-name={arch}"]
        command = [ptxas, *options, file.name, "-o", "/dev/null"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    return _number(r"Used (\d+) registers", said), _number(r"(\d+) bytes spill stores", said)


def _amd(compiled: Any, target: GPUTarget) -> tuple[int, int]:
    said = compiled.asm["amdgcn"]
    return _number(r"\.vgpr_count:\s*(\d+)", said), _number(r"\.vgpr_spill_count:\s*(\d+)", said)


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    if found is None:
        raise RuntimeError(f"the assembler did not say {pattern!r}")
    return int(found[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--target", choices=TARGETS, action="append")
    parser.add_argument("--dtype", choices=["bf16", "fp32"], action="append")
    parser.add_argument("--width", type=int, help="one shape instead of the usual ones")
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--rank", type=int, default=32)
    args = parser.parse_args()
    shapes = [(args.width, args.heads, args.rank)] if args.width else SHAPES
    spills = 0
    print("target, type, d, heads, rank, kernel, features: registers, spilled, shared bytes")
    for target in args.target or TARGETS:
        for dtype in args.dtype or ("bf16", "fp32"):
            widest = WIDEST[{"bf16": torch.bfloat16, "fp32": torch.float32}[dtype]]
            for shape in (s for s in shapes if s[0] // s[1] <= widest):
                for name in KERNELS:
                    for feature_map in (COSINE, SQUARED):
                        use = compile_one(name, TARGETS[target], dtype, *shape, feature_map)
                        spills += use.spilled > 0
                        features = "cosine" if feature_map == COSINE else "(elu + 1)^2"
                        numbers = ", ".join(map(str, use))
                        head = ", ".join(map(str, (target, dtype, *shape, name, features)))
                        print(f"{head}: {numbers}", flush=True)
    if spills:
        sys.exit(f"{spills} kernels spill registers")


if __name__ == "__main__":
    main()
