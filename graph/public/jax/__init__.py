"""Kernels as functions of JAX arrays; see `docs/jax.md`."""

from importlib.util import find_spec

if find_spec("jax") is None:
    raise ModuleNotFoundError("einkorn.jax needs JAX: pip install jax flatbuffers", name="jax")

from einkorn.graph.interop.gradients import GradientContext as Context
from einkorn.graph.interop.jax import JaxOp as Op
from einkorn.graph.interop.jax import op

__all__ = ["Context", "Op", "op"]
