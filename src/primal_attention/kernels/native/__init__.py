"""Passes over a layer in C++, for the CPU: see `source/` for the kernels, `build.py` for how they
are compiled, `library.py` for how they are loaded, `ops.py` for the layer on top of them."""
