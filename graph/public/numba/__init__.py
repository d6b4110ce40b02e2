"""Kernels inside of functions that numba compiles; see `docs/numba.md`."""

from importlib.util import find_spec

if find_spec("numba") is None:
    raise ModuleNotFoundError("einkorn.numba needs numba: pip install 'einkorn[numba]'", name="numba")

from einkorn.graph.interop.numba import function

__all__ = ["function"]
