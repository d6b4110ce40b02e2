"""Kernels inside of functions that numba compiles; see `docs/numba.md`."""

from einkorn.graph.interop.numba import function

__all__ = ["function"]
