"""Calls kernels from PyTorch.

op = einkorn.torch.op(add_one)                            an op of `torch.library`: add_one(x), compiled, exported, …
library = einkorn.torch.CustomOpLibrary("kernels/")       ops that are given their outputs: library.add_one(out, x)

@einkorn.torch.graph_op                                   a graph as an op that is given its outputs
def softened(x): ...
"""

from einkorn.graph.interop.torch.callers import CustomOpLibrary, Op, graph_op, op

__all__ = ["CustomOpLibrary", "Op", "graph_op", "op"]
