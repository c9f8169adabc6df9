"""Kernels for GPUs, written in Triton; off unless `PRIMAL_TRITON=1` (see docs/gpu.md).

The large products (queries and keys, dual variables, and their gradients) are left to the vendor's
library. What is between them, for every head the features, scores, sums of J and their gradients,
is one kernel each that keeps its tile in registers.

| file | what |
|---|---|
| `switch.py` | whether a call is served; imports no Triton |
| `steps.py` | what all kernels do to a tile: load, features, scores, their derivatives |
| `forward.py`, `backward.py` | the kernels |
| `launch.py` | their grids and blocks |
| `nodes.py` | the nodes of the graph: fixed and tied weights |
"""
