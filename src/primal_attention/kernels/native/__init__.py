"""Passes over a layer in C++, for the CPU: `source/` has the kernels, `build.py` compiles them,
`library.py` loads them, `ops.py` puts the layer on top of them."""
