"""Calls kernels from PyTorch.

op = einkorn.torch.op(add_one)                            an op of `torch.library`: add_one(x), compiled, exported, …
library = einkorn.torch.CustomOpLibrary("kernels/")       ops that are given their outputs: library.add_one(out, x)
"""

from einkorn.graph.interop.torch.callers import CustomOpLibrary, Op, op

__all__ = ["CustomOpLibrary", "Op", "op"]
