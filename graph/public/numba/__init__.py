"""Kernels inside of functions that numba compiles; see `docs/numba.md`."""

from importlib.util import find_spec

if find_spec("numba") is None:
    raise ModuleNotFoundError("einkorn.numba needs numba: pip install 'numba>=0.68,<0.69'", name="numba")

from einkorn.graph.interop.numba import function

__all__ = ["function"]
