"""Kernels as functions of JAX arrays; see `docs/jax.md`."""

from einkorn.graph.interop.gradients import Context
from einkorn.graph.interop.jax import Op, op

__all__ = ["Context", "Op", "op"]
